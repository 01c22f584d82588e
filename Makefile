# make demo and make test do their own set-up; everything else expects it done.
export GOFLAGS := -buildvcs=false
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

.PHONY: demo test check build setup generate bench fuzz clean

demo: setup build   ## the whole product on this machine: networks, workloads, real traffic
	bin/heddle demo $(ARGS)

test: setup build   ## every test, as root, on the real kernel
	scripts/test ./...

check:              ## format, vet, staticcheck, layout: under a minute
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	go test .

build:
	go build -ldflags "-X main.version=$(VERSION)" -o bin/heddle ./cmd/heddle

setup:
	@scripts/setup

generate:           ## rebuild the eBPF objects (wants clang-14, llvm-14, libbpf-dev, linux-libc-dev)
	go generate ./internal/overlay/datapath/...

bench: build        ## Go benchmarks and the traffic figures of docs/performance.md
	go test -run '^$$' -bench . -benchmem ./...
	bin/heddle bench

fuzz:               ## every fuzz target for ten seconds
	scripts/fuzz 10s

clean:
	rm -rf bin dist

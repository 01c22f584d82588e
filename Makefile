# make demo and make test do their own set-up; everything else expects it done.

# sudo and su may leave Go out of PATH.
export PATH := $(PATH):/usr/local/go/bin
# No C in the binary: it runs on any Linux. (The race detector wants C, and scripts/test asks for it.)
export CGO_ENABLED := 0
# Go's own version stamp fails in a clone that another user owns.
export GOFLAGS += -buildvcs=false
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
TIME := 10s
BENCHTIME := 1s

.NOTPARALLEL:
.PHONY: help demo test check build package image lint-package hosts setup generate bench fuzz probe octavia-probe gophercloud tempest octavia sdk ansible clean

help:               ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo:               ## the whole product on this machine with real traffic; ARGS=--keep leaves it running
	@scripts/setup demo
	@$(MAKE) --no-print-directory build
	bin/heddle demo $(ARGS)

test: setup build   ## every test, as root, on the real kernel
	scripts/test

check:              ## vet, staticcheck, format, import rules: 15 s when nothing has changed
	go vet ./...
	go vet -tags storm ./cmd/heddle
	go tool staticcheck ./...
	go -C scripts/package vet -tags hosts ./...
	go test -count 1 .

build:              ## bin/heddle
	go build -ldflags "-X main.version=$(VERSION)" -o bin/heddle ./cmd/heddle

package: build      ## Debian packages and archives in dist, for amd64 and arm64: the same bytes from the same commit
	for arch in amd64 arm64; do GOARCH=$$arch go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o dist/$$arch/heddle ./cmd/heddle || exit; done
	go -C scripts/package run . --version "$(VERSION)" --time "$$(git log -1 --format=%ct)" amd64=../../dist/amd64/heddle arm64=../../dist/arm64/heddle

image: package       ## a container image of a server, by podman: localhost/heddle
	@scripts/setup image
	rm -rf dist/image && mkdir -p dist/image/data && cp dist/amd64/heddle dist/image
	podman build --quiet -t heddle -f scripts/image/Containerfile dist/image

lint-package: package ## what Debian's lintian says of the packages; errors fail
	@scripts/setup lint
	lintian --allow-root --fail-on error dist/heddle_*_amd64.deb

hosts: build        ## the guides with packages from nothing: a server and two hosts under systemd, a virtual machine on each
	@scripts/setup
	@scripts/setup guest
	scripts/hosts

setup:              ## install what demo and test use
	@scripts/setup

generate:           ## rebuild the eBPF objects and the console's page: the same bytes wherever the tree is, with Debian 12's clang 14.0.6
	@scripts/setup generate
	go generate ./internal/overlay/datapath/... ./internal/api/console

bench: build        ## Go benchmarks for BENCHTIME=1s each, and the traffic figures of docs/performance.md
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem ./...
	bin/heddle bench $(ARGS)

fuzz:               ## every fuzz target for TIME=10s
	scripts/fuzz $(TIME)

probe:              ## the requests that were recorded of the real server, against Heddle
	go test -count 1 -run Recorded -v ./internal/api/neutronv2

octavia-probe:      ## the same with what was recorded of the real Octavia
	go test -count 1 -run Recorded -v ./internal/api/octaviav2

gophercloud tempest octavia sdk ansible: ## a test suite of others against Heddle
	scripts/outside $@

clean:              ## take away what was built
	rm -rf bin dist

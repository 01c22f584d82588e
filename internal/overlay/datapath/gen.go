package datapath

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type upcall -type tap_upcall -type instruction -type flow -type headers4 -type headers6 -type limit -type bucket -type copy -type framing -type vtep_key bpf bpf/datapath.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu

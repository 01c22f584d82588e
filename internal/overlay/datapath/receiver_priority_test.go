package datapath

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// TestReceiverPriority: the thread that receives packets goes before others, and ends with Run. No
// other datapath of this process runs meanwhile, since the test is not parallel.
func TestReceiverPriority(t *testing.T) {
	d := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, func(*Upcall) {}) }()
	awaitThreads(t, "the receiving thread", 1)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	awaitThreads(t, "its end", 0)
}

// awaitThreads waits until that many threads of this process have the receiver's nice value.
func awaitThreads(t *testing.T, what string, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) {
		files, err := filepath.Glob("/proc/self/task/*/stat")
		found := 0
		for _, file := range files {
			raw, _ := os.ReadFile(file) // of a thread that has ended
			_, fields, _ := strings.Cut(string(raw), ") ")
			if words := strings.Fields(fields); len(words) > 16 && words[16] == "-10" {
				found++
			}
		}
		return found == count, err
	}); err != nil {
		t.Fatal(err)
	}
}

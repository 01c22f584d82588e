package hostnet

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread of its own, which f may change for good: it ends with f, unless f
// unlocks it. That is never the main thread, which does not end, and whose state counts as the
// process's: other programs would take the process for one in the thread's network namespace.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		err := onThread(f) // while this goroutine keeps the main thread
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

package hostnet

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f, whose error it returns, on a thread of its own, which f may change for good: it
// ends with f, unless f unlocks it. That is never the main thread, which does not end, and whose
// state counts as the process's: other programs would take the process for one in the thread's
// network namespace.
func OnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		err := OnThread(f) // while this goroutine keeps the main thread
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

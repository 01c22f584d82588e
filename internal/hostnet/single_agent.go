package hostnet

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// namePrefix begins the abstract names of sockets that [Alone] listens on.
const namePrefix = "@heddle-"

// lockDir has the files of names whose sockets other users hold. Root alone can make files there.
const lockDir = "/run"

// answerTime bounds the wait for a connection to who holds a name.
const answerTime = 2 * time.Second

// alone is a name that this process holds.
type alone struct {
	socket net.Listener // nil: another user holds it
	lock   *os.File     // nil: the socket was free, and no process has needed the file
}

// Close gives the name up.
func (a *alone) Close() error {
	var errs []error
	if a.lock != nil {
		errs = append(errs, os.Remove(a.lock.Name()), a.lock.Close())
	}
	if a.socket != nil {
		errs = append(errs, a.socket.Close())
	}
	return errors.Join(errs...)
}

// Alone holds a name in this process's network namespace until it is closed or the process ends: of
// most agents a host can have but one. It fails while another process holds the name, of root or of
// this process's user. Other users may listen on the same socket, and keep no process from the
// name: a file stands for it then.
func Alone(name string) (io.Closer, error) {
	a, err := hold(name)
	if err != nil {
		return nil, fmt.Errorf("%s runs here already: %w", name, err)
	}
	return a, nil
}

func hold(name string) (a *alone, err error) {
	a = &alone{}
	defer func() {
		if err != nil {
			_ = a.Close() // the error says more
		}
	}()
	a.socket, err = net.Listen("unix", namePrefix+name) // abstract names belong to a network namespace
	if err == nil {
		go answer(a.socket)
	} else if held, askErr := socketHeld(name); held || askErr != nil || !errors.Is(err, unix.EADDRINUSE) {
		return a, err
	}
	a.lock, err = lockName(name, a.socket == nil)
	return a, err
}

// answer takes the connections of those who ask whether the name is held.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file is free
			<-time.After(100 * time.Millisecond)
			continue
		}
		_ = c.Close() // that it was there is the answer
	}
}

// lockName locks the file of a name, and makes it if it must. It returns nil without one.
func lockName(name string, must bool) (*os.File, error) {
	path, err := lockPath(name)
	if err != nil {
		return nil, err
	}
	for {
		flags := os.O_RDWR | unix.O_NOFOLLOW
		if must {
			flags |= os.O_CREATE
		}
		f, err := os.OpenFile(path, flags, 0o600)
		if !must && errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if same, err := stillThere(f); same || err != nil {
			return f, err
		}
		_ = f.Close() // its last holder has removed it
	}
}

// stillThere reports whether a file has its name yet.
func stillThere(f *os.File) (bool, error) {
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(locked, named), nil
}

func lockPath(name string) (string, error) {
	network, err := networkOf("thread-self")
	return filepath.Join(lockDir, fmt.Sprintf("heddle-%s-%d.lock", strings.ReplaceAll(name, "/", "_"), network)), err
}

// Held reports whether a process of root or of this process's user holds a name in this process's
// network namespace.
func Held(name string) (bool, error) {
	held, err := socketHeld(name)
	if held || err != nil {
		return held, err
	}
	lock, err := lockName(name, false)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if lock != nil {
		err = (&alone{lock: lock}).Close() // a process that was killed has left it
	}
	return false, err
}

// socketHeld reports whether a process of root or of this process's user listens on a name.
func socketHeld(name string) (bool, error) {
	c, err := net.Dial("unix", namePrefix+name)
	for end := time.Now().Add(answerTime); errors.Is(err, syscall.EAGAIN) && time.Now().Before(end); { // others wait, too
		<-time.After(answerTime / 100)
		c, err = net.Dial("unix", namePrefix+name)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPROTOTYPE), errors.Is(err, syscall.EAGAIN): // none of ours
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask for %s on this host: %w", name, err)
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false, err
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return false, controlErr
	}
	return err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid()), err
}

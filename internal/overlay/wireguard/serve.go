package wireguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// servingFD receives the reason why the process cannot serve; nothing means success.
const servingFD = 3

// Serve runs a device in this process, until the interface is deleted or ctx ends.
func Serve(ctx context.Context, name string) error {
	unix.CloseOnExec(servingFD)
	parent := os.NewFile(servingFD, "serving")
	stopped, err := open(name)
	if err != nil {
		return errors.Join(err, report(parent, err))
	}
	if err := parent.Close(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-stopped:
		return err
	}
}

func report(to *os.File, err error) error {
	_, failed := to.WriteString(err.Error())
	return errors.Join(failed, to.Close())
}

// open makes the device and serves who configures it. What is sent on the channel ends the process.
func open(name string) (<-chan error, error) {
	t, err := openTun(name)
	if err != nil {
		return nil, err
	}
	socket, err := ipc.UAPIOpen(name)
	if err != nil {
		return nil, fmt.Errorf("socket of device %s: %w", name, err)
	}
	listener, err := ipc.UAPIListen(name, socket)
	if err != nil {
		return nil, fmt.Errorf("socket of device %s: %w", name, err)
	}
	d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	stopped := make(chan error, 2)
	go func() { stopped <- accept(listener, d) }()
	go func() {
		<-d.Wait()
		stopped <- nil // the socket stays: it may be that of the next process already
	}()
	return stopped, nil
}

func accept(l net.Listener, d *device.Device) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go d.IpcHandle(c)
	}
}

// openTun makes the interface. It takes single packets: merged ones would hide the tunnelled frames
// in them from the programs.
func openTun(name string) (tun.Device, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make interface %s: %w", name, err), unix.Close(fd))
	}
	// Only now: before it has an interface nothing wakes its readers.
	file := os.NewFile(uintptr(fd), "/dev/net/tun")
	t, err := tun.CreateTUNFromFile(file, device.DefaultMTU)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s: %w", name, err), file.Close())
	}
	return t, nil
}

// Package wireguard keeps the WireGuard device that encrypts tunnelled frames between hosts
// (docs/security.md, "Who reads the wire").
//
// The device is the kernel's if the kernel has WireGuard. Otherwise a process of its own runs it
// ([Serve]), so that frames go on while the agent is away. Both are configured alike, and shown by
// wg(8).
package wireguard

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"heddle/internal/hostnet"
)

const (
	// Port is the UDP port of the devices.
	Port = 51820
	// Overhead is by how many bytes a packet is longer on the wire: IPv4, UDP, WireGuard.
	Overhead = 60
	// keepalive has a device send to a peer without being asked to, and so shake hands.
	keepalive = 25 * time.Second
	// restartEvery is the least time between starts of a device's process.
	restartEvery = time.Second
)

// Key is an X25519 key, private or public.
type Key = wgtypes.Key

// Peer is another host with one of its keys.
type Peer struct {
	Key     Key
	Address netip.Addr // where its device listens on Port, and by which its tunnelled frames go
	// Carries is set if frames to and from the address use this key. One key of a host carries; the
	// others may shake hands.
	Carries bool
	// Greet has the device shake hands at once, and every two minutes, without frames to send.
	Greet bool
}

// Options of a device. All are needed.
type Options struct {
	Name string // of the interface
	Net  *hostnet.Linux
	// Command makes the process that runs the device where the kernel has none: it calls [Serve].
	Command func(name string) *exec.Cmd
	// Died is called when that process has ended while this one runs.
	Died func()
	Log  *slog.Logger
}

// Device is the host's WireGuard device.
type Device struct {
	Options
	logged  hostnet.Kind // of the device, in the log
	started time.Time    // the process, the last time
}

// New describes the device; see Ensure.
func New(o Options) *Device { return &Device{Options: o} }

// Find returns the device's link, or [hostnet.ErrNotFound].
func (d *Device) Find() (hostnet.Link, error) { return d.Net.Link(d.Name) }

// Ensure makes the device if missing, and sets its MTU in bytes. It must not run concurrently.
func (d *Device) Ensure(mtu int) (hostnet.Link, error) {
	l, err := d.Find()
	if errors.Is(err, hostnet.ErrNotFound) {
		if l, err = d.make(); err == nil {
			err = d.prepare()
		}
	}
	if err != nil {
		return l, d.failed(err)
	}
	if l.MTU != mtu {
		err = d.Net.SetMTU(d.Name, mtu)
	}
	if !l.Up {
		err = errors.Join(err, d.Net.SetUp(d.Name, true))
	}
	if err != nil {
		return l, d.failed(err)
	}
	d.report(l.Kind)
	return l, nil
}

// report logs what encrypts, once for each kind of device.
func (d *Device) report(kind hostnet.Kind) {
	switch {
	case kind == d.logged:
		return
	case kind == hostnet.WireGuard:
		d.Log.Info("encrypting in the kernel", "device", d.Name)
	default:
		d.Log.Info("encrypting in a process, at a higher cost than in the kernel: see docs/performance.md", "device", d.Name)
	}
	d.logged = kind
}

// make makes the device in the kernel, or else starts the process that has one.
func (d *Device) make() (hostnet.Link, error) {
	l, err := d.Net.AddLink(hostnet.LinkSpec{Name: d.Name, Kind: hostnet.WireGuard})
	if !errors.Is(err, hostnet.ErrUnsupported) {
		return l, err
	}
	if time.Since(d.started) < restartEvery {
		return l, errors.New("its process has just ended")
	}
	d.started = time.Now()
	if err := d.start(); err != nil {
		return l, err
	}
	return d.Find()
}

// prepare accepts packets that the routes expect elsewhere, and silences the kernel's own.
func (d *Device) prepare() error {
	if err := d.Net.Silence(d.Name); err != nil {
		d.Log.Warn("the kernel may send IPv6 of its own on a device of the overlay", "device", d.Name, "err", err)
	}
	return d.Net.Set(hostnet.Setting{Name: "ipv4/conf/" + d.Name + "/rp_filter", Value: "2"})
}

// start runs the device's process and waits until it serves. The process outlives this one.
func (d *Device) start() error {
	serving, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer serving.Close()
	cmd := d.Command(d.Name)
	cmd.ExtraFiles = []*os.File{theirs} // servingFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = d.Net.Namespace().Do(cmd.Start)
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start its process: %w", err)
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			d.Log.Warn("the process of the WireGuard device has ended", "device", d.Name, "err", err)
		}
		d.Died()
	}()
	said, err := io.ReadAll(io.LimitReader(serving, 4096))
	if err == nil && len(said) > 0 {
		err = errors.New(string(said))
	}
	return err
}

// withClient calls f with a connection to the device.
func (d *Device) withClient(f func(*wgctrl.Client) error) error {
	var c *wgctrl.Client
	err := d.Net.Namespace().Do(func() (err error) {
		c, err = wgctrl.New()
		return err
	})
	if err == nil {
		defer c.Close()
		err = f(c)
	}
	if err != nil {
		return d.failed(err)
	}
	return nil
}

func (d *Device) failed(err error) error { return fmt.Errorf("WireGuard device %s: %w", d.Name, err) }

// State is the configuration of a device, with its handshakes.
type State struct {
	Private Key
	Peers   map[Key]PeerState
}

// PeerState is a peer of the device, and when hands were last shaken with it; zero: never.
type PeerState struct {
	Peer
	Handshake time.Time
}

// State reads the device.
func (d *Device) State() (State, error) {
	s := State{Peers: map[Key]PeerState{}}
	var found *wgtypes.Device
	err := d.withClient(func(c *wgctrl.Client) (err error) {
		found, err = c.Device(d.Name)
		return err
	})
	if err != nil {
		return s, err
	}
	s.Private = found.PrivateKey
	for i := range found.Peers {
		p := &found.Peers[i]
		state := PeerState{Peer: Peer{Key: p.PublicKey, Carries: len(p.AllowedIPs) > 0, Greet: p.PersistentKeepaliveInterval > 0}, Handshake: p.LastHandshakeTime}
		if p.LastHandshakeTime.Unix() <= 0 { // how user space says never
			state.Handshake = time.Time{}
		}
		if p.Endpoint != nil {
			state.Address, _ = netip.AddrFromSlice(p.Endpoint.IP.To4())
		}
		if len(p.AllowedIPs) > 0 { // the endpoint follows the peer; what it carries does not
			state.Address, _ = netip.AddrFromSlice(p.AllowedIPs[0].IP.To4())
		}
		s.Peers[p.PublicKey] = state
	}
	return s, nil
}

// SetPrivate gives the device this host's key. All handshakes are repeated.
func (d *Device) SetPrivate(private Key) error {
	port := Port
	return d.configure(wgtypes.Config{PrivateKey: &private, ListenPort: &port})
}

// SetPeers enters or changes peers, and removes the keys in gone, in one step. The last key set to
// carry an address carries it.
func (d *Device) SetPeers(set []Peer, gone []Key) error {
	var c wgtypes.Config
	for _, key := range gone {
		c.Peers = append(c.Peers, wgtypes.PeerConfig{PublicKey: key, Remove: true})
	}
	for _, p := range set {
		interval := time.Duration(0)
		if p.Greet {
			interval = keepalive
		}
		peer := wgtypes.PeerConfig{PublicKey: p.Key, Endpoint: &net.UDPAddr{IP: p.Address.AsSlice(), Port: Port},
			PersistentKeepaliveInterval: &interval, ReplaceAllowedIPs: true}
		if p.Carries {
			peer.AllowedIPs = []net.IPNet{{IP: p.Address.AsSlice(), Mask: net.CIDRMask(32, 32)}}
		}
		c.Peers = append(c.Peers, peer)
	}
	return d.configure(c)
}

func (d *Device) configure(config wgtypes.Config) error {
	return d.withClient(func(c *wgctrl.Client) error {
		if err := c.ConfigureDevice(d.Name, config); err != nil {
			return fmt.Errorf("configure: %w", err)
		}
		return nil
	})
}

// Remove removes the device of that name, and the process that runs it. It may be missing.
func Remove(name string, n *hostnet.Linux) error {
	if err := n.DeleteLink(name); err != nil && !errors.Is(err, hostnet.ErrNotFound) {
		return fmt.Errorf("remove WireGuard device: %w", err)
	}
	if err := os.Remove(filepath.Join("/var/run/wireguard", name+".sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove socket of WireGuard device: %w", err)
	}
	return nil
}

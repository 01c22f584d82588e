// Package wireguard keeps the WireGuard device by which tunnelled frames travel encrypted between this host and others
// (docs/security.md, "Who reads the wire").
//
// Where the kernel has WireGuard the device is the kernel's. Elsewhere a process of its own runs it ([Serve]), so that
// frames go on while the agent is away, as they do with the kernel's. Either is configured in the same way, and shown
// by wg(8).
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
	// restartEvery is how often the process of a device is started that ends again.
	restartEvery = time.Second
)

// Key is an X25519 key, private or public.
type Key = wgtypes.Key

// Peer is another host as the device knows it by one of its keys.
type Peer struct {
	Key     Key
	Address netip.Addr // where its device listens on Port, and by which its tunnelled frames go
	// Carries says that frames to and from the address travel by this key. Of the keys of one host one carries, and the
	// others may shake hands.
	Carries bool
	// Greet has the device shake hands at once, and every two minutes, without frames to send.
	Greet bool
}

// Device is the host's WireGuard device.
type Device struct {
	name    string
	net     *hostnet.Linux
	space   *hostnet.Namespace
	command func(name string) *exec.Cmd
	died    func()
	log     *slog.Logger

	logged  hostnet.Kind // of the device, in the log
	started time.Time    // the process, the last time
}

// Options of a device. All are needed.
type Options struct {
	Name      string // of the interface
	Namespace *hostnet.Namespace
	Net       *hostnet.Linux // of the same namespace
	// Command makes the process that runs the device where the kernel has none: it calls [Serve].
	Command func(name string) *exec.Cmd
	// Died is called when that process has ended while this one runs.
	Died func()
	Log  *slog.Logger
}

// New describes the device; see Ensure.
func New(o Options) *Device {
	return &Device{name: o.Name, net: o.Net, space: o.Namespace, command: o.Command, died: o.Died, log: o.Log}
}

// Find returns the device's link, or [hostnet.ErrNotFound].
func (d *Device) Find() (hostnet.Link, error) { return d.net.Link(d.name) }

// Ensure makes the device if it is not there, with an MTU in bytes, and sets it up. It returns its link. It must not be called
// twice at once.
func (d *Device) Ensure(mtu int) (hostnet.Link, error) {
	l, err := d.Find()
	if errors.Is(err, hostnet.ErrNotFound) {
		if l, err = d.make(); err == nil {
			err = d.prepare()
		}
	}
	if err != nil {
		return l, fmt.Errorf("WireGuard device %s: %w", d.name, err)
	}
	if l.MTU != mtu {
		err = d.net.SetMTU(d.name, mtu)
	}
	if !l.Up {
		err = errors.Join(err, d.net.SetUp(d.name, true))
	}
	if err != nil {
		return l, fmt.Errorf("WireGuard device %s: %w", d.name, err)
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
		d.log.Info("encrypting in the kernel", "device", d.name)
	default:
		d.log.Info("encrypting in a process, at a higher cost than in the kernel: see docs/performance.md", "device", d.name)
	}
	d.logged = kind
}

// make makes the device in the kernel, or else starts the process that has one.
func (d *Device) make() (hostnet.Link, error) {
	l, err := d.net.AddLink(hostnet.LinkSpec{Name: d.name, Kind: hostnet.WireGuard})
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

// prepare has the device take in what the routes say comes from elsewhere, and nothing of the kernel's own go out.
func (d *Device) prepare() error {
	if err := d.net.Silence(d.name); err != nil {
		d.log.Warn("the kernel may send IPv6 of its own on a device of the overlay", "device", d.name, "err", err)
	}
	return d.net.Set(hostnet.Setting{Name: "ipv4/conf/" + d.name + "/rp_filter", Value: "2"})
}

// start runs the device's process and waits until it serves. The process outlives this one.
func (d *Device) start() error {
	serving, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer serving.Close()
	cmd := d.command(d.name)
	cmd.ExtraFiles = []*os.File{theirs} // servingFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = d.space.Do(cmd.Start)
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start its process: %w", err)
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			d.log.Warn("the process of the WireGuard device has ended", "device", d.name, "err", err)
		}
		d.died()
	}()
	said, err := io.ReadAll(io.LimitReader(serving, 4096))
	if err == nil && len(said) > 0 {
		err = errors.New(string(said))
	}
	return err
}

// client speaks to the device.
func (d *Device) client() (c *wgctrl.Client, err error) {
	err = d.space.Do(func() error {
		c, err = wgctrl.New()
		return err
	})
	return c, err
}

// State is what a device has and has seen.
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
	c, err := d.client()
	if err != nil {
		return s, fmt.Errorf("WireGuard device %s: %w", d.name, err)
	}
	defer c.Close()
	found, err := c.Device(d.name)
	if err != nil {
		return s, fmt.Errorf("WireGuard device %s: %w", d.name, err)
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

// SetPrivate gives the device this host's key. Hands are shaken anew with all peers.
func (d *Device) SetPrivate(private Key) error {
	port := Port
	return d.configure(wgtypes.Config{PrivateKey: &private, ListenPort: &port})
}

// SetPeers enters peers, or changes them, and takes those out whose keys are in gone, in one step. An address is carried by
// the key that was last said to.
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
	c, err := d.client()
	if err != nil {
		return fmt.Errorf("WireGuard device %s: %w", d.name, err)
	}
	defer c.Close()
	if err := c.ConfigureDevice(d.name, config); err != nil {
		return fmt.Errorf("configure WireGuard device %s: %w", d.name, err)
	}
	return nil
}

// Remove takes the device of that name away, and with it the process that runs it. One that is not there is no error.
func Remove(name string, n *hostnet.Linux) error {
	if err := n.DeleteLink(name); err != nil && !errors.Is(err, hostnet.ErrNotFound) {
		return fmt.Errorf("remove WireGuard device: %w", err)
	}
	if err := os.Remove(filepath.Join("/var/run/wireguard", name+".sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove socket of WireGuard device: %w", err)
	}
	return nil
}

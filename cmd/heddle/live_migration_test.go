package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// migrate moves a machine live from one host to another as Nova does: a binding to the target, its
// interface there, activation when the machine runs there. TCP with machines of both goes on.
func migrate(t *testing.T, s *site, c *client, networkID string, from, to *host, peers map[string]*netlab.Namespace) {
	t.Helper()
	type m = map[string]any
	const address = "10.0.0.33"
	port, mac := c.bindPort(t, networkID, from, 33)
	tap, path := "tap"+port.ID[:11], "/v2.0/ports/"+port.ID
	vm := s.lab.MustNamespace(t, "migrating")
	call := func(method, path string, body, out any) {
		t.Helper()
		if err := c.call(t.Context(), method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	activeOn := func(want string) bool {
		t.Helper()
		var answer struct {
			Port struct {
				Status string
				Host   string `json:"binding:host_id"`
			}
		}
		call(http.MethodGet, path, nil, &answer)
		return answer.Port.Status == "ACTIVE" && answer.Port.Host == want
	}
	plug(t, vm, "eth0", mac, from, port)
	vm.MustIP(t, "link set eth0 up", "addr add "+address+"/24 dev eth0")
	within(t, "the port to be served", func() bool { return activeOn(from.name) })

	streams := map[string]net.Conn{}
	for at, peer := range peers {
		streams[at] = echoed(t, vm, peer, at+":81")
	}
	goOn := func(when string) {
		t.Helper()
		for at, stream := range streams {
			if err := stream.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Write(make([]byte, 20000)); err != nil {
				t.Fatalf("%s, to %s: %v", when, at, err)
			}
			if _, err := io.ReadFull(stream, make([]byte, 20000)); err != nil {
				t.Fatalf("%s, from %s: %v", when, at, err)
			}
		}
	}
	goOn("before")
	call(http.MethodPost, path+"/bindings", m{"binding": m{"host": to.name}}, nil)
	plug(t, vm, "eth1", mac, to, port)
	goOn("with the interface on both hosts")
	if !activeOn(from.name) {
		t.Error("an inactive binding took the port from its host")
	}
	vm.MustIP(t, "link set eth0 down", "addr del "+address+"/24 dev eth0", "link set eth1 up", "addr add "+address+"/24 dev eth1")
	call(http.MethodPut, path+"/bindings/"+to.name+"/activate", nil, nil)
	goOn("activated")
	within(t, "the port to be served on the next host", func() bool { return activeOn(to.name) })
	call(http.MethodDelete, path+"/bindings/"+from.name, nil, nil)
	from.ns.MustIP(t, "link del "+tap)
	vm.MustIP(t, "link set eth1 up")
	goOn("on the next host alone")
}

// bindPort makes the port of a machine on a host, with the MAC and IP address of a number.
func (c *client) bindPort(t testing.TB, networkID string, h *host, number int) (port object, mac string) {
	t.Helper()
	mac = fmt.Sprintf("02:00:00:00:00:%02x", number)
	return c.mustCreate(t, "port", map[string]any{"network_id": networkID, "binding:host_id": h.name, "device_owner": "compute:nova",
		"mac_address": mac, "fixed_ips": []map[string]any{{"ip_address": fmt.Sprintf("10.0.0.%d", number)}}}), mac
}

// plug gives a machine an interface whose other end is a port's on a host.
func plug(t testing.TB, vm *netlab.Namespace, name, mac string, h *host, port object) {
	t.Helper()
	tap := "tap" + port.ID[:11]
	vm.MustIP(t, fmt.Sprintf("link add %s address %s type veth peer name %s netns %s", name, mac, tap, h.ns.Name))
	h.ns.MustIP(t, "link set "+tap+" up")
}

// echoed opens a connection to a peer that sends everything back.
func echoed(t *testing.T, from, peer *netlab.Namespace, at string) (c net.Conn) {
	t.Helper()
	listenEcho(t, peer, at)
	within(t, "a connection to "+at, func() bool {
		return from.Do(func() (err error) {
			c, err = net.DialTimeout("tcp4", at, time.Second)
			return err
		}) == nil
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// listenEcho has a peer send back everything that comes by connections to an address.
func listenEcho(t *testing.T, peer *netlab.Namespace, at string) {
	t.Helper()
	var l net.Listener
	if err := peer.Do(func() (err error) {
		l, err = net.Listen("tcp4", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the client sees what is missing
			}()
		}
	}()
}

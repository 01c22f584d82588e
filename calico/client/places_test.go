package client_test

import (
	"errors"
	"net/netip"
	"testing"

	"heddle/calico"
	"heddle/calico/client"
)

// What seed 001 writes at two places is one object.
func TestKeysWithTwoPlaces(t *testing.T) {
	t.Parallel()
	ip4, ip6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		key                  calico.Key
		left, right          string
		leftValue, rightText string
		object               any
	}{
		{calico.HandleKey{Handle: "h"}, "/calico/ipam/v2/handle/h", "/calico/ipam/v2/assignment/handle/h", `{"id":"h","block":{"10.0.0.0/26":1}}`, `{"id":"h","block":{"10.0.0.0/26":2}}`, &calico.Handle{ID: "h", Block: map[netip.Prefix]int{netip.MustParsePrefix("10.0.0.0/26"): 3}}},
		{calico.BGPGlobalConfigKey{Name: "node_mesh"}, "/calico/bgp/v1/global/node_mesh", "/calico/v1/config/bgp_node_mesh", `{"enabled":true}`, `{"enabled":false}`, &calico.NodeMesh{}},
		{calico.BGPGlobalPeerKey{IP: ip4}, "/calico/bgp/v1/global/peer_v4/192.0.2.1", "/calico/v1/config/bgp_peer_v4/192.0.2.1", `{"ip":"192.0.2.1","as_num":"1"}`, `{"ip":"192.0.2.1","as_num":"2"}`, &calico.BGPPeer{IP: ip4, ASNumber: 3}},
		{calico.BGPNodePeerKey{Host: "h", IP: ip6}, "/calico/bgp/v1/host/h/peer_v6/2001:db8::1", "/calico/v1/host/h/bgp_peer_v6/2001:db8::1", `{"ip":"2001:db8::1","as_num":"1"}`, `{"ip":"2001:db8::1","as_num":"2"}`, &calico.BGPPeer{IP: ip6, ASNumber: 3}},
	} {
		t.Run(c.left, func(t *testing.T) {
			t.Parallel()
			w, ctx := start(t), t.Context()
			w.put(t, c.right, c.rightText)
			if e := must(w.Get(ctx, c.key))(t); e.Path != c.right {
				t.Errorf("get finds it at %s", e.Path)
			}
			if _, err := w.Create(ctx, c.key, c.object); !errors.Is(err, client.ErrExists) {
				t.Errorf("create beside the right one: %v", err)
			}
			w.put(t, c.left, c.leftValue)
			e := must(w.Get(ctx, c.key))(t)
			if e.Path != c.left {
				t.Errorf("of both, get finds %s", e.Path)
			}
			if s := must(w.List(ctx, c.key))(t); len(s.Entries) != 1 || s.Entries[0].Path != c.left {
				t.Errorf("list: %+v", s.Entries)
			}
			if keys, _, err := w.Keys(ctx, c.key); err != nil || len(keys) != 1 {
				t.Errorf("keys: %v, %v", keys, err)
			}
			must(w.Update(ctx, c.key, c.object, e.Revision))(t)
			if w.raw(t, c.right) != "" || w.raw(t, c.left) == c.leftValue {
				t.Error("an update leaves the right one")
			}
			w.put(t, c.right, c.rightText)
			if err := w.Delete(ctx, c.key, 0); err != nil {
				t.Error(err)
			}
			if w.raw(t, c.right)+w.raw(t, c.left) != "" {
				t.Error("a delete leaves one")
			}
			w.put(t, c.right, c.rightText)
			must(w.Apply(ctx, c.key, c.object))(t)
			if w.raw(t, c.right) != "" || w.raw(t, c.left) == "" {
				t.Error("an apply does not move it to the left")
			}
			w.put(t, c.right, c.rightText)
			must(w.Commit(ctx, client.OpClear(c.key)))(t)
			if w.raw(t, c.right)+w.raw(t, c.left) != "" {
				t.Error("a clear leaves one")
			}
			w.put(t, c.right, c.rightText)
			right := must(w.Get(ctx, c.key))(t)
			must(w.Commit(ctx, client.OpReplace(c.key, c.object, right.Revision)))(t)
			if w.raw(t, c.right) != "" {
				t.Error("a replace leaves the right one")
			}
		})
	}
}

func TestRemovingAHostsSubtree(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.put(t, "/calico/ipam/v2/host/h/ipv4/block/10.0.0.0-26", "")
	w.put(t, "/calico/ipam/v2/host/h2/ipv4/block/10.0.0.64-26", "")
	must(w.Commit(t.Context(), client.OpClear(calico.IPAMHostKey{Host: "h"})))(t)
	s := must(w.List(t.Context(), calico.BlockAffinityKey{}))(t)
	if len(s.Entries) != 1 || s.Entries[0].Key.(calico.BlockAffinityKey).Host != "h2" {
		t.Errorf("left: %+v", s.Entries)
	}
}

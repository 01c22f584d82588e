package ipam_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/calico/ipam"
)

const (
	blockPath    = "/calico/ipam/v2/assignment/ipv4/block/"
	handlePath   = "/calico/ipam/v2/handle/"
	affinityPath = "/calico/ipam/v2/host/"
)

// peerBlock returns a block as peers write it, of which the first addresses are taken.
func peerBlock(cidr, host string, taken int) string {
	allocations := make([]*int, 64)
	unallocated := []int{}
	zero := 0
	for i := range allocations {
		if i < taken {
			allocations[i] = &zero
		} else {
			unallocated = append(unallocated, i)
		}
	}
	attributes := []any{}
	if taken > 0 {
		attributes = append(attributes, map[string]any{"handle_id": "peer", "secondary": map[string]string{"node": "x"}})
	}
	text, err := json.Marshal(map[string]any{
		"cidr": cidr, "affinity": "host:" + host, "strictAffinity": false, "later": "kept",
		"allocations": allocations, "unallocated": unallocated, "attributes": attributes,
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A crash of a peer between its two writes leaves an affinity without a block: it is claimed over.
func TestStrayAffinity(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/26")
	w.put(t, affinityPath+"h1/ipv4/block/10.0.0.0-26", "")
	w.sound(t, affinityPath+"h1/ipv4/block/10.0.0.0-26: there is no such block")
	w.assign(t, 1, "h1", "x")
	w.sound(t)
}

// Two hosts have an affinity key of one block (libcalico-go issue 778): the block says whose it is.
func TestTwoAffinities(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/26")
	w.put(t, blockPath+"10.0.0.0-26", peerBlock("10.0.0.0/26", "h2", 1))
	w.put(t, handlePath+"peer", `{"block":{"10.0.0.0/26":1}}`)
	w.put(t, affinityPath+"h1/ipv4/block/10.0.0.0-26", "")
	w.put(t, affinityPath+"h2/ipv4/block/10.0.0.0-26", "{}")
	w.sound(t, affinityPath+"h1/ipv4/block/10.0.0.0-26: the block is not affine to host h1 but to h2")
	if err := w.ReleaseHostAffinities(t.Context(), "h1"); err != nil {
		t.Error(err)
	}
	w.sound(t)
	if diff := cmp.Diff([]string{"10.0.0.0/26 h2 1"}, w.blocks(t)); diff != "" {
		t.Error(diff)
	}
}

// A block of the host that its index lacks is found before another one is claimed.
func TestLostAffinity(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/26")
	w.put(t, blockPath+"10.0.0.0-26", peerBlock("10.0.0.0/26", "h1", 0))
	if err := w.SetConfig(t.Context(), calico.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true}); !errors.Is(err, ipam.ErrBlocksExist) {
		t.Errorf("configuration: %v", err)
	}
	w.put(t, "/calico/ipam/v2/config", `{"strict_affinity":true,"auto_allocate_blocks":true}`)
	w.assign(t, 3, "h1", "x")
	w.sound(t)
	raw, err := w.etcd.Get(t.Context(), blockPath+"10.0.0.0-26")
	if err != nil || !strings.Contains(string(raw.Kvs[0].Value), `"later":"kept"`) {
		t.Errorf("unknown members: %s, %v", raw.Kvs[0].Value, err)
	}
}

// Peers raise a handle's count before they write the block, so it may be too high; at the other
// place of seed 001, too.
func TestHandleThatCountsTooMuch(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24")
	ctx := t.Context()
	first := w.assign(t, 2, "h1", "own")
	b := calico.BlockOf(first[0])
	w.put(t, "/calico/ipam/v2/assignment/handle/x", fmt.Sprintf(`{"id":"x","block":{%q:3,"10.0.9.0/26":2}}`, b))
	got := w.assign(t, 1, "h1", "x")
	w.sound(t, handlePath+"x: it counts 2 addresses of block 10.0.9.0/26, which has 0", fmt.Sprintf(handlePath+"x: it counts 4 addresses of block %s, which has 1", b))
	if ips, err := w.IPsByHandle(ctx, "x"); err != nil || len(ips) != 1 || ips[0] != got[0] {
		t.Errorf("by handle: %v, %v", ips, err)
	}
	if err := w.ReleaseByHandle(ctx, "x"); err != nil {
		t.Error(err)
	}
	w.sound(t)
	// A handle that is missing for addresses that carry it (spec 19.4).
	if _, err := w.etcd.Delete(ctx, handlePath+"own"); err != nil {
		t.Fatal(err)
	}
	if not, err := w.ReleaseIPs(ctx, first[0]); err != nil || len(not) > 0 {
		t.Errorf("release: %v, %v", not, err)
	}
	path := blockPath + strings.Replace(b.String(), "/", "-", 1)
	w.sound(t, path+`: 1 of its addresses carry handle "own", which does not count them`)
}

// A block of another size is reported and counts as taken.
func TestBlockOfAnotherSize(t *testing.T) {
	t.Parallel()
	w := start(t, "10.0.0.0/24", "10.0.1.0/26")
	ctx := t.Context()
	w.put(t, blockPath+"10.0.0.0-24", strings.Replace(peerBlock("10.0.0.0/24", "h1", 0), "unallocated", "ignored", 1))
	w.put(t, affinityPath+"h1/ipv4/block/10.0.0.0-24", "")
	got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 100, Host: "h1"})
	if err != nil || len(got) != 64 || !cidr("10.0.1.0/26").Contains(got[0]) {
		t.Errorf("%d, %v; want those of the other pool", len(got), err)
	}
	if err := w.AssignIP(ctx, ipam.Assignment{IP: ip("10.0.0.1")}); !errors.Is(err, ipam.ErrInvalidBlock) {
		t.Errorf("an address of it: %v", err)
	}
	claimed, failed, err := w.ClaimAffinity(ctx, cidr("10.0.0.0/24"), "h1")
	if err != nil || len(claimed) > 0 || len(failed) != 4 {
		t.Errorf("claim inside: %v, %v, %v", claimed, failed, err)
	}
	problems, err := w.Check(ctx)
	if err != nil || len(problems) != 1 || problems[0].Path != blockPath+"10.0.0.0-24" || problems[0].Harmless {
		t.Errorf("problems: %v, %v", problems, err)
	}
}

// A block whose parts contradict each other is reported, not repaired, and nothing is allocated
// from it.
func TestBrokenBlocks(t *testing.T) {
	t.Parallel()
	good := peerBlock("10.0.0.0/26", "h1", 1)
	for name, text := range map[string]string{
		"no JSON":              "{",
		"index out of range":   strings.Replace(good, `"allocations":[0`, `"allocations":[7`, 1),
		"listed though taken":  strings.Replace(good, `"unallocated":[1`, `"unallocated":[0`, 1),
		"one missing":          strings.Replace(good, `"unallocated":[1,`, `"unallocated":[`, 1),
		"an attribute of none": strings.Replace(good, `"attributes":[`, `"attributes":[{"handle_id":"y","secondary":null},`, 1),
		"another CIDR":         strings.Replace(good, `10.0.0.0/26`, `10.0.0.64/26`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, "10.0.0.0/26")
			ctx := t.Context()
			var log bytes.Buffer
			var err error
			if w.IPAM, err = ipam.New(w.client, ipam.Options{Host: "h1", Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
				t.Fatal(err)
			}
			w.put(t, blockPath+"10.0.0.0-26", text)
			w.put(t, affinityPath+"h1/ipv4/block/10.0.0.0-26", "")
			w.put(t, handlePath+"peer", `{"block":{"10.0.0.0/26":1}}`)
			if got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1}); err != nil || len(got) > 0 {
				t.Errorf("assigned from it: %v, %v", got, err)
			}
			if got, _, err := w.AutoAssign(ctx, ipam.Request{Num4: 1}); err != nil || len(got) > 0 || strings.Count(log.String(), blockPath+"10.0.0.0-26") != 1 {
				t.Errorf("the second time: %v, %v; want it logged once:\n%s", got, err, &log)
			}
			if err := w.AssignIP(ctx, ipam.Assignment{IP: ip("10.0.0.9")}); !errors.Is(err, ipam.ErrInvalidBlock) {
				t.Errorf("assign: %v", err)
			}
			if _, err := w.ReleaseIPs(ctx, ip("10.0.0.0")); !errors.Is(err, ipam.ErrInvalidBlock) {
				t.Errorf("release: %v", err)
			}
			if err := w.ReleaseByHandle(ctx, "peer"); !errors.Is(err, ipam.ErrInvalidBlock) {
				t.Errorf("release by handle: %v", err)
			}
			if ips, err := w.IPsByHandle(ctx, "peer"); err != nil || len(ips) > 0 {
				t.Errorf("by handle: %v, %v", ips, err)
			}
			if err := w.ReleaseAffinity(ctx, netip.MustParsePrefix("10.0.0.0/26"), ""); !errors.Is(err, ipam.ErrInvalidBlock) {
				t.Errorf("release affinity: %v", err)
			}
			problems, err := w.Check(ctx)
			if err != nil || len(problems) != 1 || problems[0].Path != blockPath+"10.0.0.0-26" || problems[0].Harmless {
				t.Errorf("problems: %v, %v", problems, err)
			}
			raw, err := w.etcd.Get(ctx, blockPath+"10.0.0.0-26")
			if err != nil || string(raw.Kvs[0].Value) != text {
				t.Errorf("it was changed: %s, %v", raw.Kvs[0].Value, err)
			}
		})
	}
}

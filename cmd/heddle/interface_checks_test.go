package main

import (
	"regexp"
	"strings"
	"testing"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
)

// TestDoctorOfInterfaces: the doctor names filters and chains of other software at interfaces, and
// nothing where there are none.
func TestDoctorOfInterfaces(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "doctor")
	ns.MustIP(t, "link add card0 type veth peer name card1", "link set card0 up", "link set card1 up")
	look := func(line string) {
		t.Helper()
		text, _ := output(t, ns, "doctor", "--config", "")
		if !regexp.MustCompile(`(?m)^` + line).MatchString(text) {
			t.Errorf("want a line %q in\n%s", line, text)
		}
	}
	look(`ok +other programs at interfaces `)
	for _, args := range []string{"qdisc add dev card0 clsact", "filter add dev card0 egress protocol ip u32 match u32 0 0 flowid 1:1"} {
		if out, err := ns.Output(t.Context(), "tc", strings.Fields(args)...); err != nil {
			t.Fatal(err, out)
		}
	}
	if out, err := ns.Output(t.Context(), "nft", "add table netdev wall; add chain netdev wall guard { type filter hook ingress device card0 priority 0; }"); err != nil {
		t.Fatal(err, out)
	}
	look(`optional +other programs at interfaces .*nftables chain guard of table netdev wall, card0: tc filter u32 at egress`)
}

// TestOffloads: a card of a driver that computes wrong checksums is found until its offloads are
// off.
func TestOffloads(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "card")
	ns.MustIP(t, "link add card0 type veth peer name card1")
	opened, err := hostnet.OpenNamespace(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	net, err := hostnet.NewLinux(opened)
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	look := func(want string, drivers ...string) {
		t.Helper()
		if err := findOffloads(net, drivers); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	look("", brokenOffloads...)
	look("tx-udp_tnl-segmentation is on: card1 of driver veth, card0 of driver veth", "veth")
	for _, card := range []string{"card0", "card1"} {
		if out, err := ns.Output(t.Context(), "ethtool", "-K", card, "tx-udp_tnl-segmentation", "off", "tx-udp_tnl-csum-segmentation", "off"); err != nil {
			t.Fatal(err, out)
		}
	}
	look("", "veth")
}

package topology

import (
	"encoding/json"
	"math"
	"testing"
)

func TestBursts(t *testing.T) {
	for _, c := range []struct {
		limit         Limit
		bits, packets uint64
	}{
		{Limit{}, 0, 0},
		{Limit{Rate: 1_000_000, Packets: 1000}, 800_000, 800},
		{Limit{Rate: 1_000_000, Burst: 5000, Packets: 1000, PacketBurst: 7}, 5000, 7},
		{Limit{Rate: 19, Packets: 1}, 15, 0},
		{Limit{Rate: math.MaxUint64}, math.MaxUint64/10*8 + 4, 0},
	} {
		if bits, packets := c.limit.BurstBits(), c.limit.BurstPackets(); bits != c.bits || packets != c.packets {
			t.Errorf("%+v: bursts of %d bits and %d packets: want %d and %d", c.limit, bits, packets, c.bits, c.packets)
		}
	}
}

func TestLimitsText(t *testing.T) {
	mark := uint8(46)
	for _, c := range []struct {
		limits     Limits
		json, text string
	}{
		{Limits{ID: "a"}, `{"id":"a"}`, "unlimited"},
		{Limits{ID: "a", Egress: Limit{Rate: 1_000_000}, DSCP: &mark},
			`{"id":"a","egress":{"rate":1000000},"dscp":46}`, "egress 1000000 bit/s (burst 800000 bit); DSCP 46"},
		{Limits{ID: "a", Ingress: Limit{Rate: 100, Burst: 9, Packets: 10}},
			`{"id":"a","ingress":{"rate":100,"burst":9,"packets":10}}`, "ingress 100 bit/s (burst 9 bit), 10 packets/s (burst 8)"},
	} {
		b, err := json.Marshal(c.limits)
		if err != nil || string(b) != c.json {
			t.Errorf("%+v: JSON %s, %v: want %s", c.limits, b, err, c.json)
		}
		if text := c.limits.String(); text != c.text {
			t.Errorf("%+v: %q: want %q", c.limits, text, c.text)
		}
	}
}

func TestLimitsOfDirection(t *testing.T) {
	l := &Limits{Egress: Limit{Rate: 1}, Ingress: Limit{Packets: 2}}
	if out, in := l.In(false), l.In(true); out != l.Egress || in != l.Ingress {
		t.Errorf("egress %v, ingress %v: want %v, %v", out, in, l.Egress, l.Ingress)
	}
	if got := (*Limits)(nil).In(true); got != (Limit{}) {
		t.Errorf("limits that are missing limit to %v", got)
	}
}

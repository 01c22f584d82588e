package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/policies"
	qosrules "github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// limitedRate is the rate of the limited port in kbit/s, as Neutron counts: of IP packets.
const limitedRate = 100_000

// limits compares what passes a port with a bandwidth limit with its rate: datagrams sent as fast
// as one core can, and TCP.
func (b *bench) limits(ctx context.Context) error {
	return b.withStand(ctx, func(s *stand) error {
		group, err := s.openGroup(ctx)
		if err != nil {
			return err
		}
		w, one, two, err := s.pair(ctx, group)
		if err != nil {
			return err
		}
		if err := s.limit(ctx, w[0], qosrules.CreateBandwidthLimitRuleOpts{MaxKBps: limitedRate, Direction: "egress"}); err != nil {
			return err
		}
		for _, p := range []netlab.Path{one, two} {
			if err := b.againstRate(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// limit gives a workload's port a QoS policy with a limit, and waits until the port has it.
func (s *stand) limit(ctx context.Context, w *lab.Workload, rule qosrules.CreateBandwidthLimitRuleOpts) error {
	policy, err := policies.Create(ctx, s.tenant.Admin, policies.CreateOpts{Name: "limited", Shared: true}).Extract()
	if err != nil {
		return fmt.Errorf("QoS policy: %w", err)
	}
	if _, err := qosrules.CreateBandwidthLimitRule(ctx, s.tenant.Admin, policy.ID, rule).ExtractBandwidthLimitRule(); err != nil {
		return fmt.Errorf("its bandwidth limit: %w", err)
	}
	update := policies.PortUpdateOptsExt{UpdateOptsBuilder: ports.UpdateOpts{}, QoSPolicyID: &policy.ID}
	if _, err := ports.Update(ctx, s.tenant.API, w.Port.ID, update).Extract(); err != nil {
		return fmt.Errorf("port with the policy: %w", err)
	}
	return netlab.Until(ctx, "the port to be limited", func() (bool, error) {
		_, err := metric(ctx, s.h1.NS, "heddle_overlay_limit_drops_total", "")
		return err == nil, nil // there are none without limits
	})
}

// againstRate measures what passes a path of the limited port, after what its bucket held at first.
// It gets a little again between blasts, which counts less the longer they are.
func (b *bench) againstRate(p netlab.Path) error {
	const size, mtu, headers = 1400, 1450, 52 // TCP's with time stamps
	var datagrams, payload []float64
	for round := range b.rounds {
		b.logf("round %d: %s", round+1, p.Name)
		if _, err := p.Blast(size, time.Second); err != nil {
			return err
		}
		udp, err := p.Blast(size, 20*b.slice())
		if err != nil {
			return err
		}
		tcp, err := p.Stream(20 * b.slice())
		if err != nil {
			return err
		}
		datagrams, payload = append(datagrams, udp.PerSecond*(size+28)*8), append(payload, tcp*mtu/(mtu-headers))
	}
	b.add(offRate(p.Name+": limited UDP, off its rate", datagrams))
	b.add(offRate(p.Name+": limited TCP, off its rate", payload))
	return nil
}

// offRate returns the figure that compares bits a second with the limit.
func offRate(name string, got []float64) measure {
	m := netlab.Median(got)
	return measure{Name: name, Got: 100 * math.Abs(m/(limitedRate*1e3)-1), Unit: "%", Goal: atMost(5),
		Beside: fmt.Sprintf("%.1f of %d Mbit/s", m/1e6, limitedRate/1000)}
}

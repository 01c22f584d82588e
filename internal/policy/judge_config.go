package policy

import (
	"heddle/internal/policy/judge"
	"heddle/internal/policy/nft"
)

// Judge returns those of the settings that decide over packets.
func (s *Settings) Judge() judge.Config {
	failsafes := func(list []nft.Failsafe) (out []judge.Failsafe) {
		for _, f := range list {
			out = append(out, judge.Failsafe(f))
		}
		return out
	}
	return judge.Config{
		ToHost:          map[nft.HostAction]judge.ToHost{nft.ToHostReturn: judge.ToHostReturn, nft.ToHostAccept: judge.ToHostAccept}[s.Rules.ToHost],
		FailsafeInbound: failsafes(s.Rules.FailsafeInbound), FailsafeOutbound: failsafes(s.Rules.FailsafeOutbound),
		AcceptInvalid: s.Rules.AcceptInvalid, DropsAccepted: s.Rules.OnDrop == nft.Accept || s.Rules.OnDrop == nft.LogAndAccept,
		OpenStack: s.Rules.OpenStack, Metadata: s.Rules.Metadata, IPIP: s.IPIP,
	}
}

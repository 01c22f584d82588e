package explain

import (
	"fmt"
	"slices"
	"strconv"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/topology/packet"
)

// manyProtocols is the number of protocols from which a set names those that it has not.
const manyProtocols = 128

// rangesOf puts a set of services into words. A set with most protocols names those that are
// missing.
func rangesOf(s *reach.Services, is4 bool) (all []operator.ServiceRange) {
	whole := s.Whole()
	switch missing := missingOf(whole, is4); {
	case len(missing) == 0:
		return []operator.ServiceRange{{Protocol: "all", Text: "all"}}
	case len(whole) >= manyProtocols:
		text := "all but "
		for i, p := range missing {
			if i > 0 {
				text += ", "
			}
			text += neutron.ProtocolName(p)
		}
		all = append(all, operator.ServiceRange{Protocol: text, Text: text})
	default:
		for _, p := range whole {
			name := neutron.ProtocolName(p)
			all = append(all, operator.ServiceRange{Protocol: name, Text: name})
		}
	}
	for _, r := range s.Parts() {
		all = append(all, operator.ServiceRange{Protocol: neutron.ProtocolName(r.Proto), Low: r.Low, High: r.High, Text: rangeText(r, is4)})
	}
	return all
}

// missingOf returns the protocols of a version of IP that are not among some.
func missingOf(whole []uint8, is4 bool) (missing []uint8) {
	for p := range 256 {
		if _, found := slices.BinarySearch(whole, uint8(p)); !found && (is4 || !packet.IsExtension(uint8(p))) {
			missing = append(missing, uint8(p))
		}
	}
	return missing
}

// rangeText puts services of one protocol into words: tcp 80-89, icmp 8 or icmp 3/4 with a code.
func rangeText(r reach.Range, is4 bool) string {
	number := func(n uint16) string { return strconv.Itoa(int(n)) }
	text := neutron.ProtocolName(r.Proto) + " "
	if icmp := r.Proto == packet.ProtoICMP && is4 || r.Proto == packet.ProtoICMPv6 && !is4; icmp {
		number = func(n uint16) string { return fmt.Sprintf("%d/%d", n>>8, n&0xff) }
		if r.Low&0xff == 0 && r.High&0xff == 0xff { // with all codes
			number = func(n uint16) string { return strconv.Itoa(int(n >> 8)) }
			r.Low, r.High = r.Low&0xff00, r.High&0xff00
		}
	}
	if r.Low == r.High {
		return text + number(r.Low)
	}
	return text + number(r.Low) + "-" + number(r.High)
}

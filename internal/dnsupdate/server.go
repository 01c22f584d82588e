package dnsupdate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"
)

// ttlSeconds is the time for which resolvers may keep a record.
const ttlSeconds = 300

// exchangeTimeout bounds one update.
const exchangeTimeout = 10 * time.Second

// tsigFudge is the difference of clocks that signatures allow, seconds (RFC 8945 §10).
const tsigFudge = 300

// server is the DNS server that takes the updates.
type server struct {
	address string
	key     Key
}

// refusal is the server's answer to an update that it does not carry out.
type refusal struct{ rcode int }

func (r refusal) Error() string {
	text := "the DNS server answers " + dns.RcodeToString[r.rcode]
	switch r.rcode {
	case dns.RcodeNotAuth:
		return text + ": it does not have the zone, or does not accept the TSIG key"
	case dns.RcodeRefused:
		return text + ": it does not let the key update the name"
	}
	return text
}

// unmet reports whether an update was refused since its prerequisites did not hold.
func unmet(err error) bool {
	var r refusal
	if !errors.As(err, &r) {
		return false
	}
	switch r.rcode {
	case dns.RcodeYXDomain, dns.RcodeYXRrset, dns.RcodeNXRrset, dns.RcodeNameError:
		return true
	}
	return false
}

// zoneWide reports whether other updates of the zone would be refused as well.
func zoneWide(err error) bool {
	var r refusal
	return errors.As(err, &r) && (r.rcode == dns.RcodeNotAuth || r.rcode == dns.RcodeServerFailure)
}

// update is one update of a name's records (RFC 2136).
type update struct {
	zone, name     string
	unused         bool     // prerequisite: the name has no records
	exact          []string // prerequisite: its records of these types are these
	remove, insert []string
}

// send sends an update. The error is a [refusal] if the server has answered.
func (s *server) send(ctx context.Context, u update) error {
	m := new(dns.Msg).SetUpdate(u.zone)
	if u.unused {
		m.NameNotUsed([]dns.RR{&dns.ANY{Hdr: dns.RR_Header{Name: u.name}}})
	}
	for _, part := range []struct {
		records []string
		put     func([]dns.RR)
	}{{u.exact, m.Used}, {u.remove, m.Remove}, {u.insert, m.Insert}} {
		if len(part.records) == 0 {
			continue
		}
		rrs := make([]dns.RR, len(part.records))
		for i, record := range part.records {
			var err error
			if rrs[i], err = dns.NewRR(fmt.Sprintf("%s %d IN %s", u.name, ttlSeconds, record)); err != nil {
				return fmt.Errorf("%s: %w", u.name, err)
			}
		}
		part.put(rrs)
	}
	c := &dns.Client{Net: "tcp", Timeout: exchangeTimeout}
	if s.key.Name != "" {
		c.TsigSecret = map[string]string{s.key.Name: s.key.Secret}
		m.SetTsig(s.key.Name, s.key.Algorithm, tsigFudge, time.Now().Unix())
	}
	answer, _, err := c.ExchangeContext(ctx, m, s.address)
	if answer != nil && answer.Rcode != dns.RcodeSuccess {
		return refusal{answer.Rcode} // signed or not: it changes nothing
	}
	if err != nil {
		return fmt.Errorf("update of %s at %s: %w", u.name, s.address, err)
	}
	return nil
}

package authority

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
)

// endsSoon is the time before its end in which an authority should be exchanged.
const endsSoon = 365 * 24 * time.Hour

// found holds the facts that the status of the authorities follows from.
type found struct {
	state    backend.AuthorityState
	servers  []schema.Server // that are alive
	members  []string        // names of the store's members; one alone has no name that counts
	hosts    []host          // that have joined
	programs map[string]string
	now      time.Time
}

// host is a host with its certificate.
type host struct {
	name   string
	alive  bool
	signer string // fingerprint; "" = not recorded
	until  time.Time
}

// view is the status as operators see it.
type view struct {
	operator.Authorities
	behind []string // servers without which the former authority cannot be retired
}

// view returns the status.
func (f found) view() view {
	v := view{Authorities: operator.Authorities{Rotating: f.state.Rotating(), WaitingFor: []string{}, Problems: []string{}, Certificates: f.certificates()}}
	for _, a := range []struct {
		cert *x509.Certificate
		role string
		in   bool
	}{{f.state.Signs, "signs", true}, {f.state.Next, "next", f.state.Next != nil}, {f.state.Former, "former", f.state.FormerTrusted}} {
		if a.in {
			v.Authorities.Authorities = append(v.Authorities.Authorities, operator.Authority{Name: a.cert.Subject.CommonName, Fingerprint: fingerprint(a.cert), Role: a.role, End: a.cert.NotAfter})
		}
	}
	switch {
	case f.state.Next != nil:
		v.WaitingFor = append(v.WaitingFor, f.beforeSigning()...)
	case f.state.FormerTrusted:
		v.behind = f.serversBehind()
		v.WaitingFor = slices.Concat(v.WaitingFor, v.behind, f.hostsBehind(), f.programsBehind())
	default:
		v.Problems = append(v.Problems, f.untrusting()...)
	}
	if left := f.state.Signs.NotAfter.Sub(f.now); left < endsSoon && f.state.Next == nil {
		v.Problems = append(v.Problems, fmt.Sprintf("the authority ends on %s: exchange it, by heddle ca rotate unless its files are yours", f.state.Signs.NotAfter.Format(time.DateOnly)))
	}
	return v
}

// certificates returns those of servers, hosts and programs.
func (f found) certificates() []operator.Certificate {
	signs := fingerprint(f.state.Signs)
	all := []operator.Certificate{}
	for _, s := range f.servers {
		if t := s.Trust; t != nil {
			all = append(all, operator.Certificate{Kind: "server", Name: s.Name, Alive: true, SignedBy: t.SignedBy, Former: t.SignedBy != signs, End: t.Until})
		}
	}
	for _, h := range f.hosts {
		all = append(all, operator.Certificate{Kind: "host", Name: h.name, Alive: h.alive, SignedBy: h.signer, Former: f.hasFormer(h.signer), End: h.until})
	}
	for _, name := range slices.Sorted(maps.Keys(f.programs)) {
		all = append(all, operator.Certificate{Kind: "program", Name: name, SignedBy: f.programs[name], Former: f.hasFormer(f.programs[name])})
	}
	order := map[string]int{"server": 0, "host": 1, "program": 2}
	slices.SortStableFunc(all, func(a, b operator.Certificate) int {
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// hasFormer reports whether a certificate is of an authority that does not sign any more. Those
// without a record of it are from before the first rotation.
func (f found) hasFormer(signer string) bool {
	if signer == "" {
		return f.state.Former != nil
	}
	return signer != fingerprint(f.state.Signs)
}

// beforeSigning returns what is missing until the next authority can sign: all servers must trust
// it, and the members of a cluster accept certificates of it from each other.
func (f found) beforeSigning() (missing []string) {
	next, signs := fingerprint(f.state.Next), fingerprint(f.state.Signs)
	missing = f.absent()
	for _, s := range f.servers {
		switch t := s.Trust; {
		case t == nil:
			missing = append(missing, fmt.Sprintf("server %s does not say which authorities it trusts: upgrade it", s.Name))
		case !slices.Contains(t.Authorities, next):
			missing = append(missing, fmt.Sprintf("server %s does not trust the new authority yet", s.Name))
		case len(f.members) < 2 || slices.Contains(t.Peers, next):
		case !backend.Bridges(f.state.Signs):
			missing = append(missing, fmt.Sprintf("server %s has to be started again, since its store trusts the new authority only then: systemctl restart heddle there, one server at a time", s.Name))
		case !slices.Contains(t.Peers, signs):
			missing = append(missing, fmt.Sprintf("server %s has not been started since the rotation before: systemctl restart heddle there", s.Name))
		}
	}
	return missing
}

// absent returns the members of the cluster whose servers do not run.
func (f found) absent() (missing []string) {
	if len(f.members) < 2 {
		return nil
	}
	for _, name := range f.members {
		if !slices.ContainsFunc(f.servers, func(s schema.Server) bool { return s.Name == name }) {
			missing = append(missing, fmt.Sprintf("server %s is down: start it, or remove it if it is gone for good: heddle cluster remove %s", cmp.Or(name, "(never ran)"), name))
		}
	}
	return missing
}

// serversBehind returns the servers without which the former authority cannot be retired.
func (f found) serversBehind() []string {
	behind := f.absent()
	for _, s := range f.servers {
		if s.Trust == nil || s.Trust.SignedBy != fingerprint(f.state.Signs) {
			behind = append(behind, fmt.Sprintf("server %s has no certificate of the new authority yet", s.Name))
		}
	}
	return behind
}

// hostsBehind returns the hosts whose certificates are of the former authority and have not ended.
// Those that were away come back: they renew with their key.
func (f found) hostsBehind() (behind []string) {
	for _, h := range f.hosts {
		switch {
		case !f.hasFormer(h.signer) || !h.until.IsZero() && !f.now.Before(h.until):
		case h.alive:
			behind = append(behind, fmt.Sprintf("host %s has no certificate of the new authority yet", h.name))
		case h.until.IsZero() || !f.state.Bridged:
			behind = append(behind, fmt.Sprintf("host %s is away: start its agent; without it, heddle ca rotate --retire, and it joins again with a token of heddle host token %s", h.name, h.name))
		default:
			behind = append(behind, fmt.Sprintf("host %s is away, and its certificate good until %s; without it: heddle ca rotate --retire, it renews when it comes back", h.name, h.until.Format(time.DateOnly)))
		}
	}
	return behind
}

// programsBehind returns the programs whose certificates are of the former authority.
func (f found) programsBehind() (behind []string) {
	for _, name := range slices.Sorted(maps.Keys(f.programs)) {
		if f.hasFormer(f.programs[name]) {
			behind = append(behind, fmt.Sprintf("program %s has a certificate of the former authority: give it another: heddle calico access %s --dir DIRECTORY; or take its rights: heddle calico access %s --remove", name, name, name))
		}
	}
	return behind
}

// untrusting returns the servers whose stores still trust a retired authority as members of a
// cluster, since they read the authorities when they start.
func (f found) untrusting() (missing []string) {
	if f.state.Former == nil || len(f.members) < 2 {
		return nil
	}
	for _, s := range f.servers {
		if s.Trust != nil && slices.Contains(s.Trust.Peers, fingerprint(f.state.Former)) {
			missing = append(missing, fmt.Sprintf("server %s trusts the retired authority for other members until it is started again: systemctl restart heddle there, one server at a time", s.Name))
		}
	}
	return missing
}

package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"heddle/calico"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// ofNeutron tells the keys that operations write.
func ofNeutron(path string) bool {
	key, _ := calico.ParseKey(path)
	switch key := key.(type) {
	case calico.WorkloadEndpointKey:
		return key.Orchestrator == translate.Orchestrator && !key.Legacy
	case calico.ProfileRulesKey:
		return strings.HasPrefix(key.Profile, translate.ProfilePrefix) && !key.Legacy
	case calico.ProfileTagsKey:
		return strings.HasPrefix(key.Profile, translate.ProfilePrefix) && !key.Legacy
	case calico.DHCPSubnetKey:
		return true
	}
	return false
}

// paths are the keys at which something is due.
func paths(r records.Reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range keysOf(r) {
			if path, err := key.Path(); err == nil && !yield(path) {
				return
			}
		}
	}
}

func keysOf(r records.Reader) iter.Seq[calico.Key] {
	return func(yield func(calico.Key) bool) {
		for n := range schema.Networks.All(r) {
			if n.Routed() && !keysOn(r, n, yield) {
				return
			}
		}
		for g := range schema.SecurityGroups.All(r) {
			id := translate.ProfileID(g.ID)
			if !yield(calico.ProfileRulesKey{Profile: id}) || !yield(calico.ProfileTagsKey{Profile: id}) {
				return
			}
		}
	}
}

// keysOn yields the keys of a routed network's subnets and ports, until it is told to stop.
func keysOn(r records.Reader, n *neutron.Network, yield func(calico.Key) bool) bool {
	for s := range schema.Subnets.By(r, "network", n.ID) {
		if s.EnableDHCP && !yield(calico.DHCPSubnetKey{Subnet: s.ID}) {
			return false
		}
	}
	for p := range schema.Ports.By(r, "network", n.ID) {
		if translate.HasEndpoint(p, n) && !yield(translate.EndpointKey(p)) {
			return false
		}
	}
	return true
}

// hasRouted says whether there is a routed network.
func hasRouted(r records.Reader) bool {
	for n := range schema.Networks.All(r) {
		if n.Routed() {
			return true
		}
	}
	return false
}

// due is what lies at one of Neutron's keys as the objects mean it, nil for nothing. It is false for a key that is not
// Neutron's. In a transaction all that it follows from is guarded.
func (s *Service) due(r records.Reader, path string) (value []byte, ours bool, err error) {
	key, _ := calico.ParseKey(path)
	object, ours := s.objectAt(r, key)
	if object == nil {
		return nil, ours, nil
	}
	canonical, err := key.Path()
	if err == nil && canonical == path {
		value, err = calico.Encode(key, object)
	}
	if err != nil {
		return nil, true, fmt.Errorf("%s cannot be derived: %w", path, err)
	}
	return value, true, nil
}

// objectAt is due as an object.
func (s *Service) objectAt(r records.Reader, key calico.Key) (object any, ours bool) {
	switch key := key.(type) {
	case calico.WorkloadEndpointKey:
		p, err := schema.Ports.Get(r, key.Endpoint)
		if err != nil || translate.EndpointKey(p) != key {
			return nil, true
		}
		n, err := schema.Networks.Get(r, p.NetworkID)
		if err != nil || !translate.HasEndpoint(p, n) {
			return nil, true
		}
		e, err := s.endpoint(r, p, n)
		if err != nil {
			return nil, false // never: its subnets are there as long as it is
		}
		return e, true
	case calico.DHCPSubnetKey:
		sub, err := schema.Subnets.Get(r, key.Subnet)
		if err != nil {
			return nil, false // another's, or of one that is no more
		}
		n, err := schema.Networks.Get(r, sub.NetworkID)
		if err != nil || !n.Routed() {
			return nil, true
		}
		if d := translate.DHCPSubnet(sub, n); d != nil {
			return d, true
		}
		return nil, true
	case calico.ProfileRulesKey:
		if g, err := groupOf(r, key.Profile); err == nil {
			object, _ = translate.Profile(g)
		}
	case calico.ProfileTagsKey:
		if g, err := groupOf(r, key.Profile); err == nil {
			_, object = translate.Profile(g)
		}
	}
	return object, true
}

func groupOf(r records.Reader, profile string) (*neutron.SecurityGroup, error) {
	return schema.SecurityGroups.Get(r, strings.TrimPrefix(profile, translate.ProfilePrefix))
}

// endpoint is that of a port which has one, on network n.
func (s *Service) endpoint(r records.Reader, p *neutron.Port, n *neutron.Network) (*calico.WorkloadEndpoint, error) {
	subnets := make([]*neutron.Subnet, 0, len(p.FixedIPs))
	for _, f := range p.FixedIPs {
		sub, err := schema.Subnets.Get(r, f.SubnetID)
		if err != nil {
			return nil, err
		}
		subnets = append(subnets, sub)
	}
	return translate.Endpoint(p, n, subnets, s.opts.DNSDomain), nil
}

// repair makes keys what they should be in one transaction, and returns those that were not. Names keep the domain that
// they have, but for keys in renaming: another server may have been told another one, and is not to be fought.
func (s *Service) repair(ctx context.Context, paths []string, renaming map[string]bool) ([]string, error) {
	return transact(ctx, s, neutron.Caller{}, func(o *operation) ([]string, error) {
		var repaired []string
		for _, path := range paths {
			changed, err := o.repairKey(ctx, path, renaming[path])
			if err != nil {
				return nil, err
			}
			if changed {
				repaired = append(repaired, path)
			}
		}
		return repaired, nil
	})
}

func (o *operation) repairKey(ctx context.Context, path string, rename bool) (changed bool, err error) {
	want, ours, err := o.due(o.tx, path)
	if err != nil || !ours {
		return false, err
	}
	kv, err := o.db.Store().Get(ctx, path)
	there := !errors.Is(err, store.ErrNotFound)
	switch {
	case there && err != nil:
		return false, fmt.Errorf("%s: %w", path, err)
	case there == (want != nil) && bytes.Equal(kv.Value, want), !rename && sameButDomain(kv.Value, want):
		return false, nil
	}
	o.tx.ExpectKey(path, kv.ModRevision)
	if want == nil {
		o.tx.DeleteKey(path)
	} else {
		o.tx.PutKey(path, want)
	}
	return true, nil
}

// sameButDomain says whether two endpoints differ in the domain of their names alone.
func sameButDomain(a, b []byte) bool {
	decoded, err := calico.DecodeAs(calico.KindWorkloadEndpoint, a)
	if err != nil {
		return false
	}
	other, err := calico.DecodeAs(calico.KindWorkloadEndpoint, b)
	if err != nil {
		return false
	}
	e, name := decoded.(*calico.WorkloadEndpoint), other.(*calico.WorkloadEndpoint).FQDN
	host, _, _ := strings.Cut(e.FQDN, ".")
	if want, _, _ := strings.Cut(name, "."); host != want {
		return false
	}
	e.FQDN = name
	value, err := calico.EncodeAs(calico.KindWorkloadEndpoint, e)
	return err == nil && bytes.Equal(value, b)
}

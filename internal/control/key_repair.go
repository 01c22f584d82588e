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

// ofNeutron reports whether operations write the key at a path.
func ofNeutron(path string) bool {
	key, _ := calico.ParseKey(path)
	switch key := key.(type) {
	case calico.WorkloadEndpointKey:
		return key.Orchestrator == calico.OpenStack && !key.Legacy
	case calico.ProfileRulesKey:
		return strings.HasPrefix(key.Profile, translate.ProfilePrefix) && !key.Legacy
	case calico.ProfileTagsKey:
		return strings.HasPrefix(key.Profile, translate.ProfilePrefix) && !key.Legacy
	case calico.DHCPSubnetKey:
		return true
	}
	return false
}

// paths returns the keys of all desired values.
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

// keysOn yields the keys of a routed network's subnets and ports. It returns false once yield does.
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

// hasRouted reports whether there is a routed network.
func hasRouted(r records.Reader) bool { return schema.Networks.CountBy(r, "routed", "true") > 0 }

// desiredValue returns the value that should be stored at a key, or nil if nothing should. The key
// is not ours if it is not one of Neutron's. An error means that the value is not known; the key
// must stay as it is then. A transaction guards all that the value is derived from.
func (s *Service) desiredValue(r records.Reader, path string) (value []byte, ours bool, err error) {
	key, _ := calico.ParseKey(path)
	object, ours, err := s.desiredObject(r, key)
	if err == nil && object == nil {
		return nil, ours, nil
	}
	if err == nil {
		value, err = calico.Encode(key, object)
	}
	if err != nil {
		return nil, ours, fmt.Errorf("%s cannot be derived: %w", path, err)
	}
	return value, ours, nil
}

// desiredObject returns the object that should be stored at a key, as [Service.desiredValue] does.
func (s *Service) desiredObject(r records.Reader, key calico.Key) (object any, ours bool, err error) {
	switch key := key.(type) {
	case calico.WorkloadEndpointKey:
		p, err := find(schema.Ports, r, key.Endpoint)
		if p == nil || translate.EndpointKey(p) != key {
			return nil, true, err
		}
		n, err := find(schema.Networks, r, p.NetworkID)
		if n == nil || !translate.HasEndpoint(p, n) {
			return nil, true, err
		}
		e, err := s.endpoint(r, p, n)
		if err != nil {
			return nil, true, err
		}
		return e, true, nil
	case calico.DHCPSubnetKey:
		sub, err := find(schema.Subnets, r, key.Subnet)
		if sub == nil {
			return nil, err != nil, err // another program's, or of a subnet that was deleted
		}
		n, err := find(schema.Networks, r, sub.NetworkID)
		if n == nil || !n.Routed() {
			return nil, true, err
		}
		if d := translate.DHCPSubnet(sub, n); d != nil {
			return d, true, nil
		}
	case calico.ProfileRulesKey:
		g, err := groupOf(r, key.Profile)
		if g == nil {
			return nil, true, err
		}
		if object, _, err = profileOf(r, g); err != nil {
			return nil, true, err
		}
	case calico.ProfileTagsKey:
		g, err := groupOf(r, key.Profile)
		if g == nil {
			return nil, true, err
		}
		_, object = translate.Profile(g, nil)
	}
	return object, true, nil
}

// find returns a record, or nil if there is none or an error.
func find[T any](t *records.Table[T], r records.Reader, id string) (*T, error) {
	o, err := t.Get(r, id)
	if none := (*records.NotFoundError)(nil); errors.As(err, &none) {
		return nil, nil
	}
	return o, err
}

func groupOf(r records.Reader, profile string) (*neutron.SecurityGroup, error) {
	return find(schema.SecurityGroups, r, strings.TrimPrefix(profile, translate.ProfilePrefix))
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

// repairs is the outcome of a repair.
type repairs struct {
	changed []string
	failed  map[string]error // keys with a desired value that is not known
}

// repair corrects keys in one transaction. Names keep their domain, except at keys in renaming: a
// server configured with another domain would change them back.
func (s *Service) repair(ctx context.Context, paths []string, renaming map[string]bool) (repairs, error) {
	return transact(ctx, s, neutron.Caller{}, func(o *operation) (repairs, error) {
		done := repairs{failed: map[string]error{}}
		for _, path := range paths {
			want, ours, err := o.desiredValue(o.tx, path)
			if err != nil {
				done.failed[path] = err
			}
			if err != nil || !ours {
				continue
			}
			changed, err := o.repairKey(ctx, path, want, renaming[path])
			if err != nil {
				return done, fmt.Errorf("%s: %w", path, err)
			}
			if changed {
				done.changed = append(done.changed, path)
			}
		}
		return done, nil
	})
}

func (o *operation) repairKey(ctx context.Context, path string, want []byte, rename bool) (changed bool, err error) {
	kv, err := o.db.Store().Get(ctx, path)
	there := !errors.Is(err, store.ErrNotFound)
	switch {
	case there && err != nil:
		return false, err
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

// sameButDomain reports whether two endpoints differ in the domain of their names alone.
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

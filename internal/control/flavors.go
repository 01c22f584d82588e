package control

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The operations on flavors and their profiles. Everyone sees flavors; the rest is for admins.
type (
	flavors struct {
		*resource[neutron.Flavor, neutron.Flavor]
	}
	serviceProfiles struct {
		*resource[neutron.ServiceProfile, neutron.ServiceProfile]
	}
)

func newFlavors(s *Service) *resource[neutron.Flavor, neutron.Flavor] {
	t := schema.Flavors
	res := asStored(s, neutron.Flavors, finder[neutron.Flavor]{t, []criterion[neutron.Flavor]{byOwnID(t), byName(t)},
		func(r records.Reader, _ neutron.Caller) []iter.Seq[*neutron.Flavor] {
			return []iter.Seq[*neutron.Flavor]{t.All(r)}
		}},
		func(f *neutron.Flavor) *neutron.Standard { return &f.Standard }, (*operation).createFlavor)
	res.owner = func(records.Reader, *neutron.Flavor) (neutron.Owner, bool) { return neutron.Owner{Shared: true}, true }
	return res
}

func newServiceProfiles(s *Service) *resource[neutron.ServiceProfile, neutron.ServiceProfile] {
	res := asStored(s, neutron.ServiceProfiles, forAdmins(schema.ServiceProfiles),
		func(p *neutron.ServiceProfile) *neutron.Standard { return &p.Standard }, (*operation).createServiceProfile)
	res.owner = func(records.Reader, *neutron.ServiceProfile) (neutron.Owner, bool) { return neutron.Owner{}, true }
	return res
}

// Flavors returns the operations on flavors, beside [Service.AddProfile] and
// [Service.RemoveProfile].
func (s *Service) Flavors() Operations[*neutron.Flavor] {
	o := s.flavors.untagged()
	o.Update, o.Delete = s.flavors.update, s.flavors.delete
	return o
}

// ServiceProfiles returns the operations on the profiles of flavors.
func (s *Service) ServiceProfiles() Operations[*neutron.ServiceProfile] {
	o := s.serviceProfiles.untagged()
	o.Update, o.Delete = s.serviceProfiles.update, s.serviceProfiles.delete
	return o
}

// ServiceProviders returns the list of the implementations of services. Everyone sees them.
func (s *Service) ServiceProviders() Operations[*neutron.ServiceProvider] {
	return Operations[*neutron.ServiceProvider]{List: func(context.Context, neutron.Caller, neutron.Query) (iter.Seq[*neutron.ServiceProvider], error) {
		return func(yield func(*neutron.ServiceProvider) bool) {
			for _, p := range neutron.ServiceProviders() {
				if !yield(&p) {
					return
				}
			}
		}, nil
	}}
}

func (o *operation) createFlavor(_ context.Context, v neutron.Values) (*neutron.Flavor, error) {
	f := &neutron.Flavor{Standard: o.standard(v, 1), ServiceType: v.Text("service_type"), Enabled: v.Flag("enabled"),
		ProfileIDs: list[string](v, "service_profiles")}
	return f, o.putFlavor(f)
}

func (s flavors) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.Flavor, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(_ *operation, f, _ *neutron.Flavor) error {
		setFlag(&f.Enabled, v, "enabled")
		setList(&f.ProfileIDs, v, "service_profiles")
		return nil
	}, (*operation).putFlavor)
}

// changeFlavor stores a flavor unless it is as before.
func (o *operation) changeFlavor(old, f *neutron.Flavor) error {
	if reflect.DeepEqual(old, f) {
		return nil
	}
	o.bump(&f.Standard)
	return o.putFlavor(f)
}

func (o *operation) putFlavor(f *neutron.Flavor) error {
	for _, id := range f.ProfileIDs {
		if _, err := schema.ServiceProfiles.Need(o.tx, id); err != nil {
			return neutron.ServiceProfiles.NotFound(id)
		}
	}
	return schema.Flavors.Put(o.tx, f)
}

func (s flavors) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.Flavor) error {
		return inUse(schema.Flavors.Delete(o.tx, id), "FlavorInUse", "Flavor %s is used by some service instance.", id)
	})
}

// inUse returns an error with this type and text for a delete that the store refuses because of
// references.
func inUse(err error, typ, format string, args ...any) error {
	var used *records.InUseError
	if errors.As(err, &used) {
		return conflict(typ, format, args...)
	}
	return err
}

// AddProfile gives a flavor another profile, as its last.
func (s *Service) AddProfile(ctx context.Context, c neutron.Caller, flavorID, profileID string) (*neutron.Flavor, error) {
	return s.changeProfiles(ctx, c, "create_flavor_service_profile", flavorID, func(f *neutron.Flavor) error {
		if slices.Contains(f.ProfileIDs, profileID) {
			return conflict("FlavorServiceProfileBindingExists", "Service Profile %s is already associated with flavor %s.", profileID, flavorID)
		}
		f.ProfileIDs = append(slices.Clone(f.ProfileIDs), profileID)
		return neutron.CheckList("service_profiles", len(f.ProfileIDs))
	})
}

// RemoveProfile takes a profile from a flavor.
func (s *Service) RemoveProfile(ctx context.Context, c neutron.Caller, flavorID, profileID string) error {
	_, err := s.changeProfiles(ctx, c, "delete_flavor_service_profile", flavorID, func(f *neutron.Flavor) error {
		i := slices.Index(f.ProfileIDs, profileID)
		if i < 0 {
			return profileNotBound(profileID, flavorID)
		}
		f.ProfileIDs = slices.Delete(slices.Clone(f.ProfileIDs), i, i+1)
		return nil
	})
	return err
}

func profileNotBound(profileID, flavorID string) error {
	return neutron.Errorf(neutron.NotFound, "FlavorServiceProfileBindingNotFound", "Service Profile %s is not associated with flavor %s.", profileID, flavorID)
}

func (s *Service) changeProfiles(ctx context.Context, c neutron.Caller, action, flavorID string, change func(f *neutron.Flavor) error) (*neutron.Flavor, error) {
	return transact(ctx, s, c, func(o *operation) (*neutron.Flavor, error) {
		if err := neutron.AuthorizeAdmin(c, action); err != nil {
			return nil, err
		}
		old, err := schema.Flavors.Get(o.tx, flavorID)
		if err != nil {
			return nil, neutron.Flavors.NotFound(flavorID)
		}
		f := *old
		if err := change(&f); err != nil {
			return nil, err
		}
		return &f, o.changeFlavor(old, &f)
	})
}

// NextProvider returns the provider that a flavor chooses.
func (s *Service) NextProvider(ctx context.Context, flavorID string) (neutron.ServiceProvider, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return neutron.ServiceProvider{}, err
	}
	f, ok := schema.Flavors.Peek(snap, flavorID)
	if !ok {
		return neutron.ServiceProvider{}, neutron.Flavors.NotFound(flavorID)
	}
	return chosenProvider(snap, f)
}

// chosenProvider returns the provider of a flavor's first profile.
func chosenProvider(r records.Reader, f *neutron.Flavor) (neutron.ServiceProvider, error) {
	var none neutron.ServiceProvider
	if len(f.ProfileIDs) == 0 {
		return none, profileNotBound("", f.ID)
	}
	profile, ok := schema.ServiceProfiles.Peek(r, f.ProfileIDs[0])
	switch {
	case !ok:
		return none, neutron.ServiceProfiles.NotFound(f.ProfileIDs[0])
	case !profile.Enabled:
		return none, neutron.Errorf(neutron.Unavailable, "ServiceProfileDisabled", "Service Profile is not enabled.")
	}
	return providerOf(profile.Driver)
}

func providerOf(driver string) (neutron.ServiceProvider, error) {
	p, ok := neutron.ProviderOf(driver)
	if !ok {
		return p, neutron.Errorf(neutron.NotFound, "ServiceProfileDriverNotFound", "Service Profile driver %s could not be found.", driver)
	}
	return p, nil
}

func (o *operation) createServiceProfile(_ context.Context, v neutron.Values) (*neutron.ServiceProfile, error) {
	p := &neutron.ServiceProfile{Standard: o.standard(v, 1), Driver: v.Text("driver"), Metainfo: v.Text("metainfo"), Enabled: v.Flag("enabled")}
	if p.Driver == "" && p.Metainfo == "" {
		return nil, neutron.Errorf(neutron.Invalid, "ServiceProfileEmpty", "Service Profile needs either a driver or metainfo.")
	}
	return p, o.putServiceProfile(p)
}

func (o *operation) putServiceProfile(p *neutron.ServiceProfile) error {
	if p.Driver != "" {
		if _, err := providerOf(p.Driver); err != nil {
			return err
		}
	}
	return schema.ServiceProfiles.Put(o.tx, p)
}

func (s serviceProfiles) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.ServiceProfile, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(o *operation, p, _ *neutron.ServiceProfile) error {
		if len(schema.Flavors.Referrers(o.tx, "service_profile", id)) > 0 {
			return profileInUse(id)
		}
		setText(&p.Driver, v, "driver")
		setText(&p.Metainfo, v, "metainfo")
		setFlag(&p.Enabled, v, "enabled")
		return nil
	}, (*operation).putServiceProfile)
}

func profileInUse(id string) error {
	return conflict("ServiceProfileInUse", "Service Profile %s is used by some service instance.", id)
}

func (s serviceProfiles) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.ServiceProfile) error {
		return inUse(schema.ServiceProfiles.Delete(o.tx, id), "ServiceProfileInUse", "Service Profile %s is used by some service instance.", id)
	})
}

// applyFlavor gives a new router the flags of the provider that its flavor chooses.
func (e routerEdit) applyFlavor(v neutron.Values) error {
	id := v.Text("flavor_id")
	if id == "" {
		return nil
	}
	f, err := schema.Flavors.Get(e.tx, id)
	switch {
	case err != nil:
		return neutron.Flavors.NotFound(id)
	case f.ServiceType != neutron.ServiceL3:
		return invalid("Flavor %s is of the service %s, not of %s", id, f.ServiceType, neutron.ServiceL3)
	case !f.Enabled:
		return neutron.Errorf(neutron.Unavailable, "FlavorDisabled", "Flavor is not enabled.")
	}
	p, err := chosenProvider(e.tx, f)
	if err != nil {
		return err
	}
	for name, has := range map[string]bool{"distributed": p.Distributed, "ha": p.HA} {
		if asked, given := v[name].(bool); given && asked != has {
			return invalid("Provider %s does not support %s=%s", p.Name, name, map[bool]string{true: "True", false: "False"}[asked])
		}
	}
	e.r.FlavorID, e.r.Distributed, e.r.HA = id, p.Distributed, p.HA
	return nil
}

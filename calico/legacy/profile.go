package legacy

import (
	"fmt"

	"heddle/calico"
)

// Profile is a profile of the legacy tree.
type Profile struct {
	Rules calico.ProfileRules
	Tags  calico.ProfileTags
}

// check refuses a profile that is not valid, or has what seed 000 has no member or word for.
func (p *Profile) check(id string) error {
	rules, tags := legacyParts(id)
	if _, err := calico.Encode(rules, &p.Rules); err != nil {
		return fmt.Errorf("profile %s: %w", id, err)
	}
	if _, err := calico.Encode(tags, &p.Tags); err != nil {
		return fmt.Errorf("profile %s: %w", id, err)
	}
	return nil
}

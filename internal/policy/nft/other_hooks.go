package nft

import (
	"fmt"

	"github.com/google/nftables"
)

// InterfaceChains returns the chains of nftables that see the frames of single interfaces before or
// after everything else, in words. They are other software's: Heddle has none of that family.
func InterfaceChains() (found []string, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	all, err := c.ListChainsOfTableFamily(nftables.TableFamilyNetdev)
	if err != nil {
		return nil, fmt.Errorf("chains of nftables: %w", err)
	}
	for _, chain := range all {
		if chain.Hooknum != nil {
			found = append(found, fmt.Sprintf("nftables chain %s of table netdev %s", chain.Name, chain.Table.Name))
		}
	}
	return found, nil
}

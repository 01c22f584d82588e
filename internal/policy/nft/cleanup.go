package nft

import (
	"context"
	"fmt"
)

// Cleanup removes all that is ours from nftables in one batch, and nothing else.
func Cleanup(ctx context.Context, b Backend) error {
	f, err := b.read(ctx)
	if err != nil {
		return err
	}
	var all batch
	for _, table := range []family{inet, arp} {
		if f.tables[table] {
			all = append(all, operation{kind: deleteTable, ref: ref{table: table}})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return b.commit(ctx, all)
}

// Tables returns the names of the tables in nftables that are ours.
func Tables(ctx context.Context, b Backend) ([]string, error) {
	f, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, table := range []family{inet, arp} {
		if f.tables[table] {
			names = append(names, fmt.Sprintf("%v %s", table, tableName))
		}
	}
	return names, nil
}

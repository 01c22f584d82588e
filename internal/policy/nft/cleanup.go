package nft

import (
	"context"
	"fmt"
)

// Leftovers tells what of ours is in nftables, a line for each table; none when nothing is.
func Leftovers(ctx context.Context, b Backend) ([]string, error) {
	f, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, table := range []family{inet, arp} {
		if !f.tables[table] {
			continue
		}
		chains, sets := 0, 0
		for r := range f.chains {
			if r.table == table {
				chains++
			}
		}
		for r := range f.sets {
			if r.table == table {
				sets++
			}
		}
		lines = append(lines, fmt.Sprintf("table %s %s with %d chains and %d sets", table, tableName, chains, sets))
	}
	return lines, nil
}

// Cleanup removes all that is ours from nftables, and nothing else, in one batch. Nothing of ours there is success.
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

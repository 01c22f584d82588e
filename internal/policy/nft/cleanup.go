package nft

import "context"

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

package control

import "context"

// Once looks at all keys as Run does at its start, once.
func (k *Keys) Once(ctx context.Context) error {
	if _, err := k.markAll(ctx); err != nil {
		return err
	}
	return k.pass(ctx)
}

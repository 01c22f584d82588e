package ipam

import (
	"context"
	"errors"
	"fmt"

	"heddle/calico"
	"heddle/calico/client"
)

// defaultConfig applies when there is none (spec 11.1).
var defaultConfig = calico.IPAMConfig{AutoAllocateBlocks: true}

// GetConfig returns the configuration that is in force.
func (i *IPAM) GetConfig(ctx context.Context) (calico.IPAMConfig, error) {
	c, _, err := i.config(ctx)
	return c, err
}

// config returns the configuration, and its revision; 0: there is none, and the default applies.
func (i *IPAM) config(ctx context.Context) (calico.IPAMConfig, int64, error) {
	c, rev, err := client.Get[*calico.IPAMConfig](ctx, i.client, calico.IPAMConfigKey{})
	if errors.Is(err, client.ErrNotFound) {
		return defaultConfig, 0, nil
	}
	if err != nil {
		return calico.IPAMConfig{}, 0, err
	}
	return *c, rev, nil
}

// SetConfig changes the configuration. It fails with [ErrConfig] for one under which nothing could
// be allocated, and with [ErrBlocksExist] unless it is what is in force already.
func (i *IPAM) SetConfig(ctx context.Context, c calico.IPAMConfig) error {
	if !c.StrictAffinity && !c.AutoAllocateBlocks {
		return fmt.Errorf("IPAM configuration: %w", ErrConfig)
	}
	for range maxAttempts {
		now, rev, err := i.config(ctx)
		if err != nil {
			return err
		}
		if now.StrictAffinity == c.StrictAffinity && now.AutoAllocateBlocks == c.AutoAllocateBlocks {
			return nil
		}
		if c.Unknown == nil {
			c.Unknown = now.Unknown
		}
		// Claims have the configuration's revision as a condition: none can slip in between.
		_, err = i.client.Commit(ctx, client.OpReplace(calico.IPAMConfigKey{}, &c, rev), client.OpNone(calico.BlockKey{}))
		var fault *client.KeyError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &fault) && fault.Key == (calico.BlockKey{}):
			return fmt.Errorf("IPAM configuration: %s: %w: release all addresses and affinities first", fault.Path, ErrBlocksExist)
		case !isConflict(err):
			return err
		}
	}
	return fmt.Errorf("IPAM configuration: %w", ErrBusy)
}

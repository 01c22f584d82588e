package console

import (
	"context"
	"errors"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// upgrade answers with the members and what they know, and with those that do not report.
func (c *console) upgrade(r *http.Request) (*operator.Formats, error) {
	found, _, err := schema.ReadFormat(r.Context(), c.DB.Store())
	if err != nil {
		return nil, err
	}
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	members := schema.Members(snap)
	v := operator.Formats{Written: found.Written, MinReader: found.MinReader, Newest: schema.NewestFormat(found, members), Members: []operator.Reader{}}
	for _, m := range members {
		v.Members = append(v.Members, operator.Reader{Role: m.Role, Name: m.Name, ID: m.ID, Version: m.Version, Reads: m.Reads, Writes: m.Writes, Behind: m.Reads < v.Newest})
	}
	if v.Silent, err = c.silent(r.Context(), snap); err != nil {
		return nil, err
	}
	return &v, nil
}

// silent returns the cluster's servers and the hosts that do not report.
func (c *console) silent(ctx context.Context, snap *records.Snap) ([]operator.Silent, error) {
	all := []operator.Silent{}
	if c.Cluster != nil {
		members, err := c.Cluster(ctx)
		if err != nil {
			return nil, err
		}
		up := servers(snap)
		for _, m := range members {
			if m.Name != "" && !serves(up, m.Name) {
				all = append(all, operator.Silent{Role: "serve", Name: m.Name})
			}
		}
	}
	hosts, err := c.hostsOf(ctx, snap)
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		if !h.Alive {
			all = append(all, operator.Silent{Role: "agent", Name: h.Name})
		}
	}
	return all, nil
}

// commitUpgrade raises the store's format, and answers as upgrade does.
func (c *console) commitUpgrade(r *http.Request) (*operator.Formats, error) {
	now, err := schema.CommitFormat(r.Context(), c.DB, c.Formats)
	if behind := new(schema.BehindError); errors.As(err, &behind) {
		return nil, api.Errorf(http.StatusConflict, "%v", behind)
	} else if err != nil {
		return nil, err
	}
	c.Log.Info("store's format committed", "written", now.Written, "min_reader", now.MinReader)
	return c.upgrade(r)
}

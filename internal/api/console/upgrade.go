package console

import (
	"errors"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/store/schema"
)

// upgrade answers with the members and what they know.
func (c *console) upgrade(w http.ResponseWriter, r *http.Request) error {
	found, _, err := schema.ReadFormat(r.Context(), c.DB.Store())
	if err != nil {
		return err
	}
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return err
	}
	members := schema.Members(snap)
	v := operator.Formats{Written: found.Written, MinReader: found.MinReader, Newest: schema.NewestFormat(found, members), Members: []operator.Reader{}}
	for _, m := range members {
		v.Members = append(v.Members, operator.Reader{Role: m.Role, Name: m.Name, ID: m.ID, Version: m.Version, Reads: m.Reads, Writes: m.Writes, Behind: m.Reads < v.Newest})
	}
	api.WriteJSON(w, http.StatusOK, v)
	return nil
}

// commitUpgrade raises the store's format, and answers with it.
func (c *console) commitUpgrade(w http.ResponseWriter, r *http.Request) error {
	now, err := schema.CommitFormat(r.Context(), c.DB, c.Formats)
	if behind := new(schema.BehindError); errors.As(err, &behind) {
		return api.Errorf(http.StatusConflict, "%v", behind)
	} else if err != nil {
		return err
	}
	c.Log.Info("store's format committed", "written", now.Written, "min_reader", now.MinReader)
	api.WriteJSON(w, http.StatusOK, now)
	return nil
}

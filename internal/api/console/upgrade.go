package console

import (
	"errors"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/schema"
)

// upgradeView is the format that the store is in, and those that its live members know.
type upgradeView struct {
	schema.StoreFormat
	Newest  int          `json:"newest"` // newest format that a member writes
	Members []memberView `json:"members"`
}

type memberView struct {
	schema.Member
	Behind bool `json:"behind"` // it does not read the newest format
}

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
	v := upgradeView{StoreFormat: found, Newest: schema.NewestFormat(found, members), Members: []memberView{}}
	for _, m := range members {
		v.Members = append(v.Members, memberView{m, m.Reads < v.Newest})
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

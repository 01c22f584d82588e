package hosts

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

func newHostID() string { return uuid.NewString() }

func view(r records.Reader, h *topology.Host) operator.Host {
	v := operator.Host{ID: h.ID, Name: h.Name, Roles: []string{}, Ports: schema.Ports.CountBy(r, "bound_host", h.ID)}
	if reached, ok := schema.HostWithTunnels(r, h.ID); ok {
		h = reached
	}
	if len(h.Tunnels) > 0 {
		v.TunnelIP = h.Tunnels[0].IP.String()
	}
	if s, ok := schema.HostStates.Peek(r, h.ID); ok {
		v.Alive, v.MTU, v.Version, v.StartedAt = true, s.MTU, s.Version, &s.StartedAt
		if s.TunnelIP.IsValid() {
			v.TunnelIP = s.TunnelIP.String()
		}
		v.Roles = append(v.Roles, s.Roles...)
	}
	if c, ok := cutOffs.Peek(r, h.ID); ok {
		v.CutOff = c.Reason
	}
	if m, ok := schema.PoolHosts.Peek(r, schema.XenRef(h.ID)); ok {
		if !v.Alive {
			v.Alive, v.Version, v.StartedAt = true, m.Version, &m.Started
		}
		if !slices.Contains(v.Roles, "xen") {
			v.Roles = append(v.Roles, "xen")
		}
	}
	if j, ok := joined.Peek(r, h.ID); ok {
		v.JoinedAt = &j.At
	}
	return v
}

func (s *service) list(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.DB.View(r.Context())
	if err != nil {
		return err
	}
	list := []operator.Host{}
	for h := range schema.Hosts.All(snap) {
		v, err := s.withPolicy(r.Context(), snap, h)
		if err != nil {
			return err
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b operator.Host) int { return strings.Compare(a.Name, b.Name) })
	api.WriteJSON(w, http.StatusOK, map[string]any{"hosts": list})
	return nil
}

// withPolicy returns the view of a host, alive also if its policy agent is.
func (s *service) withPolicy(ctx context.Context, r records.Reader, h *topology.Host) (v operator.Host, err error) {
	v = view(r, h)
	if !v.Alive {
		v.Alive, err = schema.PolicyAlive(ctx, s.DB.Store(), r, h)
	}
	return v, err
}

// find returns the host with this id or name.
func find(r records.Reader, idOrName string) (*topology.Host, error) {
	h, err := schema.FindHost(r, idOrName)
	var ambiguous *schema.AmbiguousHostError
	switch {
	case err == nil:
		return h, nil
	case errors.As(err, &ambiguous):
		return nil, api.Errorf(http.StatusConflict, "%s may be any of the hosts with the ids %s: give an id.", idOrName, strings.Join(ambiguous.IDs, ", "))
	}
	return nil, api.Errorf(http.StatusNotFound, "Host %s could not be found.", idOrName)
}

func (s *service) show(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.DB.View(r.Context())
	if err != nil {
		return err
	}
	h, err := find(snap, r.PathValue("id"))
	if err != nil {
		return err
	}
	v, err := s.withPolicy(r.Context(), snap, h)
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"host": v})
	return nil
}

// remove shuts a host out: first its rights, so that nothing can bring it back, then what is known
// of it. With force also while ports are bound to it; control.Bindings, which follows the hosts,
// sees to them, as it does to a port that is bound at this very moment.
func (s *service) remove(w http.ResponseWriter, r *http.Request) error {
	force, err := strconv.ParseBool(r.URL.Query().Get("force"))
	if err != nil && r.URL.Query().Has("force") {
		return api.Errorf(http.StatusBadRequest, "force: want true or false.")
	}
	ctx := r.Context()
	snap, err := s.DB.View(ctx)
	if err != nil {
		return err
	}
	h, err := find(snap, r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := idle(snap, h, force); err != nil {
		return err
	}
	had, _ := joined.Peek(snap, h.ID)
	if err := s.Admission.RemoveHost(ctx, h.ID); err != nil {
		return err
	}
	_, err = s.DB.Update(ctx, func(tx *records.Tx) error { return forget(tx, h, force) })
	var refused *api.Error
	if errors.As(err, &refused) {
		// A port was bound meanwhile: the host stays, and gets back what it had.
		return errors.Join(err, s.readmit(context.WithoutCancel(ctx), h, had))
	} else if err != nil {
		return err
	}
	s.Log.Info("host removed", "host", h.Name, "id", h.ID, "by", api.Who(ctx).UserID, "force", force)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readmit gives a host that stays what RemoveHost took.
func (s *service) readmit(ctx context.Context, h *topology.Host, had *Joined) error {
	if had == nil {
		return nil // it neither joined nor has rights of its own
	}
	_, err := s.DB.Update(ctx, func(tx *records.Tx) error { return joined.Put(tx, had) })
	if err != nil {
		return err
	}
	return s.allowLastJoin(ctx, h.ID, h.Name)
}

// idle refuses a host that ports are bound to.
func idle(r records.Reader, h *topology.Host, force bool) error {
	if n := schema.Ports.CountBy(r, "bound_host", h.ID); n > 0 && !force {
		return api.Errorf(http.StatusConflict, "Host %s still has ports bound to it (%d). Move or delete them, or remove the host with force.", h.Name, n)
	}
	return nil
}

func forget(tx *records.Tx, h *topology.Host, force bool) error {
	if err := idle(tx, h, force); err != nil {
		return err
	}
	var absent *records.NotFoundError
	for t := range spent.By(tx, "host", h.ID) {
		if err := spent.Delete(tx, t.Hash); err != nil {
			return err
		}
	}
	for _, remove := range []func(*records.Tx, string) error{
		joined.Delete, cutOffs.Delete, schema.Underlays.Delete, schema.Hosts.Delete, // the host may be removed twice at once
	} {
		if err := remove(tx, h.ID); err != nil && !errors.As(err, &absent) {
			return err
		}
	}
	return nil
}

package xapi

import (
	"context"

	"heddle/internal/store"
	"heddle/internal/xen/model"
)

// reserved lets calls that free space use the reserve of a full store. Logging in writes nothing.
func reserved(ctx context.Context, m *model.Call) context.Context {
	if !frees(m) {
		return ctx
	}
	return store.WithReserve(ctx)
}

// frees reports whether a call removes objects or values, or is needed before others can remove
// them, as detaching is.
func frees(m *model.Call) bool {
	switch m.Verb {
	case model.RemoveFrom, model.Remove:
		return true
	case model.Do:
	default:
		return false
	}
	switch m.Message.Name {
	case "destroy", "forget", "db_forget", "eject", "remove_purpose",
		"unplug", "unplug_force", "hard_shutdown", "clean_shutdown", "declare_dead", "cancel":
		return true
	}
	return false
}

package neutronv2_test

import (
	"net/http"
	"testing"

	"heddle/internal/control"
)

// TestListsOfFewSharedObjects: what a list costs follows its answer, however many objects others
// share.
func TestListsOfFewSharedObjects(t *testing.T) {
	s := newServer(t, control.Options{Quotas: map[string]int{"network": -1, "rbac_policy": -1}})
	allocations := func(query string, networks int) float64 {
		return testing.AllocsPerRun(5, func() {
			if got := len(list(s.must(t, http.StatusOK, "other", http.MethodGet, "/networks"+query, nil).doc()["networks"])); got != networks {
				t.Fatalf("%d networks%s, want %d", got, query, networks)
			}
		})
	}
	queries := map[string]int{"": 5, "?shared=True": 5, "?router:external=True": 0, "?limit=2": 2}
	few := map[string]float64{}
	shareNetworks(t, s, 10, 5)
	for query, n := range queries {
		few[query] = allocations(query, n)
	}
	shareNetworks(t, s, 3000, 0)
	for query, n := range queries {
		if many := allocations(query, n); many > 2*few[query]+200 {
			t.Errorf("/networks%s: %.0f allocations beside 3,000 networks of others, %.0f beside few", query, many, few[query])
		}
	}
}

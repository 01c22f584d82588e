package cli

import "testing"

// TestRolesCheck: a role that waits for something is found, with what it waits for.
func TestRolesCheck(t *testing.T) {
	t.Parallel()
	wantFinding(t, rolesCheck(&sockets{dir: t.TempDir()}), "")
	wantFinding(t, rolesCheck(agentWith(t, nil)), "")
	wantFinding(t, rolesCheck(agentWith(t, nil, "the store", "another agent reports as host h1")),
		"heddle agent waits for the store, another agent reports as host h1")
}

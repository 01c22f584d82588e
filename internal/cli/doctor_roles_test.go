package cli

import "testing"

// TestRolesCheck: a role that is not ready is found, with what it waits for or what is wrong.
func TestRolesCheck(t *testing.T) {
	t.Parallel()
	wantFinding(t, rolesCheck(&sockets{dir: t.TempDir()}), "")
	wantFinding(t, rolesCheck(agentWith(t, nil)), "")
	wantFinding(t, rolesCheck(agentWith(t, nil, "the store", "another agent reports as host h1")),
		"heddle agent is not ready: the store, another agent reports as host h1")
	address := "no interface of this host has the tunnel address 192.0.2.9: give it to one, or with --tunnel-ip name an address that an interface has"
	wantFinding(t, rolesCheck(agentWith(t, nil, address)), "heddle agent is not ready: "+address)
}

package cli

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/command"
)

func TestBGPRows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	routers := []operator.BGPRouter{
		{Name: "edge", AS: 64512, Host: "h1", Status: "RUNNING", Peers: []operator.BGPPeer{
			{Address: netip.MustParseAddr("203.0.113.1"), AS: 65001, State: "ESTABLISHED", Since: now.Add(-90 * time.Second), Received: 3, Refused: 1, Advertised: 2, LastError: "refused routes: 1"},
			{Address: netip.MustParseAddr("203.0.113.9"), AS: 4200000001, State: "ACTIVE", Since: now, LastError: "another MD5 password"}}},
		{ID: "id", AS: 64513, Status: "DOWN", Message: "no host"},
	}
	var b strings.Builder
	if err := command.PrintTable(&b, "text", routers, []string{"ROUTER", "AS", "HOST", "SPEAKER", "PEER"}, bgpRows(routers, now)); err != nil {
		t.Fatal(err)
	}
	const want = `ROUTER  AS     HOST  SPEAKER  PEER
edge    64512  h1    RUNNING  203.0.113.1  65001       established  1m30s  3  1  2  refused routes: 1
edge    64512  h1    RUNNING  203.0.113.9  4200000001  active       -      0  0  0  another MD5 password
id      64513  -     DOWN     -            -           -            -      0  0  0  no host
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

package api

import (
	"net"
	"slices"
	"testing"
)

// TestInheritedTake: a server takes the socket of its address, once; others stay.
func TestInheritedTake(t *testing.T) {
	t.Parallel()
	listen := func(address string) net.Listener {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	port := func(l net.Listener) string { _, p, _ := net.SplitHostPort(l.Addr().String()); return p }
	local, all := listen("127.0.0.1:0"), listen(":0")
	i := &Inherited{left: []net.Listener{local, all}}
	for _, c := range []struct {
		address string
		want    net.Listener
	}{
		{"127.0.0.1:1", nil}, {"127.0.0.2:" + port(local), nil}, {":" + port(local), nil}, {"127.0.0.1:" + port(all), nil}, {"no address", nil},
		{"localhost:" + port(local), local}, {"127.0.0.1:" + port(local), nil}, // taken
		{"0.0.0.0:" + port(all), all},
	} {
		if c.want == all && !slices.Equal(i.Left(), []string{all.Addr().String()}) {
			t.Errorf("left: %q, want %s alone", i.Left(), all.Addr())
		}
		if got := i.take(c.address); got != c.want {
			t.Errorf("%s: took %v, want %v", c.address, got, c.want)
		}
	}
	if len(i.Left()) != 0 {
		t.Errorf("left: %q", i.Left())
	}
	var none *Inherited
	if none.take("127.0.0.1:1") != nil || none.Left() != nil {
		t.Error("nothing inherited, and something there")
	}
}

package credentials

import (
	"context"
	"net/netip"
	"strings"
	"testing"
)

// here is the address of a client.
var here = netip.MustParseAddr("192.0.2.1")

// cheap keeps tests that log in hundreds of times fast.
func cheap() Cost { return Cost{Memory: 64, Passes: 1, Threads: 1} }

func TestPasswords(t *testing.T) {
	t.Parallel()
	ctx, p := context.Background(), NewPasswords(DefaultCost())
	stored, err := p.Hash(ctx, here, "right")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		stored, password string
		want             bool
	}{
		{stored, "right", true}, {stored, "wrong", false}, {stored, "", false}, {stored, strings.Repeat("x", MaxPassword+1), false},
		{"", "", false}, {"", "right", false},
	} {
		if got, err := p.Check(ctx, here, c.stored, c.password); err != nil || got != c.want {
			t.Errorf("check(%.20q, %.20q) = %v, %v; want %v", c.stored, c.password, got, err, c.want)
		}
	}
	again, _ := p.Hash(ctx, here, "right")
	if again == stored {
		t.Error("two hashes of one password are the same: no salt")
	}
	if _, err := p.Hash(ctx, here, strings.Repeat("x", MaxPassword+1)); err == nil {
		t.Error("an endless password was taken")
	}
	if _, err := p.Check(ctx, here, "plain", "plain"); err == nil {
		t.Error("a stored value that is no hash was taken")
	}
}

// TestHashOfAnotherCost: a hash that was made when the cost was another is still that of its
// password.
func TestHashOfAnotherCost(t *testing.T) {
	t.Parallel()
	stored, p := cheap().Hash("right"), NewPasswords(DefaultCost())
	for password, want := range map[string]bool{"right": true, "wrong": false} {
		if got, err := p.Check(t.Context(), here, stored, password); err != nil || got != want {
			t.Errorf("%s: %v, %v", password, got, err)
		}
	}
}

func FuzzParseHash(f *testing.F) {
	f.Add(cheap().Hash("x"))
	f.Add("$argon2id$v=19$m=64,t=1,p=1$$")
	f.Fuzz(func(t *testing.T, s string) {
		c, _, key, err := parseHash(s)
		if err == nil && (c.Passes == 0 || c.Threads == 0 || len(key) < 16) {
			t.Errorf("%q was taken as a hash: %+v", s, c)
		}
	})
}

func BenchmarkLogin(b *testing.B) {
	p := NewPasswords(DefaultCost())
	stored := p.cost.Hash("right")
	for b.Loop() {
		if ok, _ := p.Check(context.Background(), here, stored, "right"); !ok {
			b.Fatal("refused")
		}
	}
}

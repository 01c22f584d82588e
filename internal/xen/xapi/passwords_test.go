package xapi

import (
	"errors"
	"strings"
	"testing"
)

// TestPasswords: a hash belongs to its password alone, and what is no hash to none.
func TestPasswords(t *testing.T) {
	t.Parallel()
	p := newPasswords()
	hash, err := hashPassword("geheim")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		hash, password string
		right          bool
		err            error
	}{
		{hash, "geheim", true, nil},
		{hash, "Geheim", false, nil},
		{hash, "", false, nil},
		{hash, strings.Repeat("x", maxPassword+1), false, nil},
		{"", "", false, nil},
		{"", "geheim", false, nil},
		{"geheim", "geheim", false, errBadHash},
		{hashHead() + "$", "", false, errBadHash},
		{hashHead() + "!$!", "", false, errBadHash},
	} {
		if right, err := p.check(t.Context(), tt.hash, tt.password); right != tt.right || !errors.Is(err, tt.err) {
			t.Errorf("%q with %.10q: %v, %v", tt.hash, tt.password, right, err)
		}
	}
	for range maxWaiting {
		p.waiting <- struct{}{}
	}
	if _, err := p.check(t.Context(), hash, "geheim"); !errors.Is(err, errBusy) {
		t.Error(err)
	}
}

package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// TestTrust: only a server that is known by its authority or its fingerprint gets the password.
func TestTrust(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c call) (any, *model.Error) { return nil, nil })
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that the client breaks off
	s.StartTLS()
	der := s.Certificate().Raw
	sum := sha256.Sum256(der)
	print := hex.EncodeToString(sum[:])
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		trust client.Trust
		ok    bool
	}{
		"system":              {client.Trust{}, false},
		"authority":           {client.Trust{CAFile: file}, true},
		"fingerprint":         {client.Trust{Fingerprint: print}, true},
		"colons":              {client.Trust{Fingerprint: "SHA256:" + colons(print)}, true},
		"another fingerprint": {client.Trust{Fingerprint: strings.Repeat("00", 32)}, false},
	} {
		conf, err := c.trust.Config()
		if err != nil {
			t.Fatal(err)
		}
		session, err := client.Dial(context.Background(), client.Options{URL: s.URL, TLS: conf})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want to be let in: %v", name, err, c.ok)
		}
		if err == nil {
			session.Close(context.Background())
		} else if name == "system" && client.Presented(err) != print {
			t.Errorf("presented %q, want %q", client.Presented(err), print)
		}
	}
	if n := s.count("session.login_with_password"); n != 3 {
		t.Errorf("%d logins were sent, want 3", n)
	}
	for _, bad := range []client.Trust{{Fingerprint: "12"}, {Fingerprint: strings.Repeat("z", 64)}, {CAFile: file + ".none"}, {CAFile: os.DevNull}} {
		if _, err := bad.Config(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func colons(digits string) string {
	var b strings.Builder
	for i := 0; i < len(digits); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(strings.ToUpper(digits[i : i+2]))
	}
	return b.String()
}

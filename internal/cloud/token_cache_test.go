package cloud

import (
	"os"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// TestTokenCache: a token is kept for one login alone, in a file of its owner's, and used while it
// is valid for a while.
func TestTokenCache(t *testing.T) {
	dir := t.TempDir()
	cache := func(auth gophercloud.AuthOptions) *tokenCache { return newTokenCache(dir, auth) }
	auth := func(project string) gophercloud.AuthOptions {
		return gophercloud.AuthOptions{IdentityEndpoint: "http://127.0.0.1:5000/v3", Username: "admin", Password: "one", Scope: &gophercloud.AuthScope{ProjectName: project}}
	}
	c := cache(auth("admin"))
	if token := c.read(); token != "" {
		t.Errorf("an empty cache has %q", token)
	}
	if err := c.write(cachedToken{"secret", time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if token := cache(auth("admin")).read(); token != "secret" {
		t.Errorf("the same login has the token %q", token)
	}
	if info, err := os.Stat(c.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v, want 0600", info.Mode(), err)
	}
	changed := auth("admin")
	changed.Password = "two"
	for what, other := range map[string]gophercloud.AuthOptions{"another project": auth("demo"), "another password": changed} {
		if token := cache(other).read(); token != "" {
			t.Errorf("%s has the token %q", what, token)
		}
	}
	if err := c.write(cachedToken{"secret", time.Now().Add(leastTokenLife - time.Second)}); err != nil {
		t.Fatal(err)
	}
	if token := c.read(); token != "" {
		t.Error("a token that is about to end is used")
	}
	if err := os.WriteFile(c.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if token := c.read(); token != "" {
		t.Errorf("a torn file has the token %q", token)
	}
}

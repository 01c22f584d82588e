package cloud

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// leastTokenLife is the time that a token must still be valid for, to be used by a command.
const leastTokenLife = 15 * time.Minute

// tokenCache keeps the token of a login in a file that its owner alone may read, so that the next
// command need not log in: checking a password takes the server longer than most calls.
type tokenCache struct{ file string }

// cachedToken is the content of the file.
type cachedToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// UserTokenDir returns the directory for tokens in the user's cache directory, "" if the user has
// none: then each command logs in.
func UserTokenDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "heddle")
}

// newTokenCache returns the cache for a login. Its file is named by a hash of all that the login
// states, so that a changed password or another project has another one.
func newTokenCache(dir string, auth gophercloud.AuthOptions) *tokenCache {
	var scope gophercloud.AuthScope
	if auth.Scope != nil {
		scope = *auth.Scope
	}
	auth.Scope = nil
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", fmt.Sprintf("%+v", auth), fmt.Sprintf("%+v", scope)))
	return &tokenCache{filepath.Join(dir, "token-"+hex.EncodeToString(sum[:16])+".json")}
}

// authenticate logs in with the token in the cache, or else as auth says, and keeps that token.
// That nothing can be kept is no error.
func (c *tokenCache) authenticate(ctx context.Context, provider *gophercloud.ProviderClient, auth gophercloud.AuthOptions) error {
	if token := c.read(); token != "" {
		err := openstack.Authenticate(ctx, provider, gophercloud.AuthOptions{IdentityEndpoint: auth.IdentityEndpoint, TokenID: token})
		var unanswered net.Error
		if err == nil || errors.As(err, &unanswered) {
			return err
		}
		_ = provider.SetTokenAndAuthResult(nil) // revoked, or of a former server
	}
	if err := openstack.Authenticate(ctx, provider, auth); err != nil {
		return err
	}
	if result, ok := provider.GetAuthResult().(tokens.CreateResult); ok {
		if token, err := result.ExtractToken(); err == nil {
			_ = c.write(cachedToken{token.ID, token.ExpiresAt})
		}
	}
	return nil
}

// read returns the token in the file, "" if there is none that is valid for a while.
func (c *tokenCache) read() string {
	raw, err := os.ReadFile(c.file)
	var t cachedToken
	if err != nil || json.Unmarshal(raw, &t) != nil || time.Until(t.Expires) < leastTokenLife {
		return ""
	}
	return t.Token
}

// write replaces the file, in whole.
func (c *tokenCache) write(t cachedToken) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(c.file), "new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) // nothing after the rename
	if _, err := next.Write(raw); err != nil {
		next.Close()
		return err
	}
	if err := next.Close(); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), c.file); err != nil {
		return fmt.Errorf("cache of the token: %w", err)
	}
	return nil
}

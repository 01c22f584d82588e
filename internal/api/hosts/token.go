package hosts

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// tokenPrefix marks a join token and the version of its form.
const tokenPrefix = "heddle-join-1."

// joinToken is the text that an operator carries from a server to a host: where the servers are,
// how to recognize them, and a secret that is good for one join.
type joinToken struct {
	Servers []string `json:"s"`           // base URLs
	Pin     string   `json:"p,omitempty"` // api.Fingerprint of a certificate in the chain that every server presents; "" = plain HTTP
	Secret  string   `json:"k"`
	Expires int64    `json:"e,omitempty"` // Unix time; 0 = unknown
}

var errToken = errors.New("this is not a join token; make one on the server with `heddle host token`")

// newSecret makes a secret and the hash of it that the store keeps.
func newSecret() (secret, hash string) {
	secret = rand.Text() + rand.Text()
	return secret, hashSecret(secret)
}

func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// String is the token as one word without characters special to a shell.
func (t joinToken) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings only
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(s string) (joinToken, error) {
	var t joinToken
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), tokenPrefix)
	if !ok {
		return t, errToken
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return t, errToken
	}
	if err := json.Unmarshal(b, &t); err != nil || t.Secret == "" || len(t.Servers) == 0 {
		return t, errToken
	}
	for _, s := range t.Servers {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			return t, fmt.Errorf("join token: %q is no server URL", s)
		}
		if u.Scheme != "http" && (u.Scheme != "https" || t.Pin == "") {
			return t, fmt.Errorf("join token: server %s: want https with a fingerprint, or http", s)
		}
	}
	return t, nil
}

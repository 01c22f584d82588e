// Package jointoken is the text that an operator carries from a server to a machine that is to join
// it, and the calls by which that machine uses it:
//
//	server: Token{URLs, fingerprint, secret} ─ by hand ─▶ machine: Post to such a server
//
// The secret is good once. Servers keep its hash.
package jointoken

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// Kind is the purpose of a token. Its text begins with it; it has the version of its form.
type Kind string

const (
	ForHost   Kind = "heddle-join-1."   // becoming a host of the virtual network
	ForServer Kind = "heddle-server-1." // becoming a member of the servers' cluster
)

// command returns the command that makes tokens of the kind.
func (k Kind) command() string {
	if k == ForServer {
		return "heddle cluster token"
	}
	return "heddle host token"
}

// Token says where the servers are, how to recognize them, and has a secret that is good for one
// join.
type Token struct {
	Servers []string `json:"s"`           // base URLs
	Pin     string   `json:"p,omitempty"` // api.Fingerprint of a certificate in the chain that every server presents; "" = plain HTTP
	Secret  string   `json:"k"`
	Expires int64    `json:"e,omitempty"` // Unix time; 0 = unknown
}

// NewSecret makes a secret and the hash of it that the store keeps.
func NewSecret() (secret, hash string) {
	secret = rand.Text() + rand.Text()
	return secret, Hash(secret)
}

// Hash returns what the store keeps of a secret.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Encode returns the token as one word without characters special to a shell.
func (t Token) Encode(kind Kind) string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings only
	}
	return string(kind) + base64.RawURLEncoding.EncodeToString(b)
}

// Parse reads a token of a kind. An error says by which command one is made.
func Parse(text string, kind Kind) (Token, error) {
	var t Token
	text = strings.TrimSpace(text)
	for other, is := range map[Kind]string{ForHost: "hosts", ForServer: "servers"} {
		if other != kind && strings.HasPrefix(text, string(other)) {
			return t, fmt.Errorf("this join token is for %s; make one on the server with `%s`", is, kind.command())
		}
	}
	rest, ok := strings.CutPrefix(text, string(kind))
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil || json.Unmarshal(b, &t) != nil || t.Secret == "" || len(t.Servers) == 0 {
		return t, fmt.Errorf("this is not a join token; make one on the server with `%s`", kind.command())
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

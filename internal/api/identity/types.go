package identity

import (
	"encoding/json"
	"strings"
	"time"
)

// What the store keeps. A Serial grows whenever tokens that rest on the object must die (Serials).

// Domain is a namespace of users and projects.
type Domain struct {
	ID          string `json:"id"`
	Name        string `json:"name"` // unique
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
	Serial      int64  `json:"serial"`
}

// Project owns resources.
type Project struct {
	ID          string   `json:"id"`
	DomainID    string   `json:"domain_id"`
	Name        string   `json:"name"` // unique in its domain
	Description string   `json:"description"`
	Enabled     bool     `json:"enabled"`
	Tags        []string `json:"tags"`
	Serial      int64    `json:"serial"`
	Extra       extra    `json:"extra,omitempty"`
}

// User is someone who logs in.
type User struct {
	ID               string `json:"id"`
	DomainID         string `json:"domain_id"`
	Name             string `json:"name"` // unique in its domain
	Enabled          bool   `json:"enabled"`
	DefaultProjectID string `json:"default_project_id,omitempty"`
	PasswordHash     string `json:"password_hash,omitempty"` // argon2id; "" = cannot log in with a password
	Serial           int64  `json:"serial"`
	Extra            extra  `json:"extra,omitempty"` // email, description and whatever else clients attach
}

// extra are attributes that clients attach and Heddle only keeps, as Keystone does.
type extra map[string]json.RawMessage

// Role is a name that policies refer to: admin, member, reader, and those that operators add.
type Role struct {
	ID          string `json:"id"`
	Name        string `json:"name"` // unique
	Description string `json:"description"`
}

// Assignment gives a user a role on a project or a domain. Grant distinguishes it from an earlier
// assignment of the same role that was taken back: tokens of that one stay invalid.
type Assignment struct {
	UserID    string `json:"user_id"`
	RoleID    string `json:"role_id"`
	ProjectID string `json:"project_id,omitempty"` // exactly one of the two is set
	DomainID  string `json:"domain_id,omitempty"`
	Grant     string `json:"grant"`
}

// target is a project or a domain on which roles are given.
type target struct{ projectID, domainID string }

func (t target) zero() bool { return t == target{} }

// assignmentKey names an assignment: a user's assignments lie together, and those of one target
// together within them.
func assignmentKey(userID string, t target, roleID string) string {
	kind, id := "project", t.projectID
	if t.domainID != "" {
		kind, id = "domain", t.domainID
	}
	return strings.Join([]string{userID, kind, id, roleID}, "/")
}

func (a *Assignment) target() target { return target{a.ProjectID, a.DomainID} }
func (a *Assignment) key() string    { return assignmentKey(a.UserID, a.target(), a.RoleID) }

// Token is the store's record of a token: everything but the token itself, of which it has the
// SHA-256.
type Token struct {
	Hash      string      `json:"hash"` // hex; the key
	UserID    string      `json:"user_id"`
	ProjectID string      `json:"project_id,omitempty"`
	DomainID  string      `json:"domain_id,omitempty"`
	Methods   []string    `json:"methods"`
	AuditIDs  []string    `json:"audit_ids"`
	IssuedAt  time.Time   `json:"issued_at"`
	ExpiresAt time.Time   `json:"expires_at"`
	Roles     []roleGrant `json:"roles,omitempty"`
	Serials   Serials     `json:"serials"`

	AppCredentialID string `json:"app_credential_id,omitempty"` // the application credential it was issued for
	// Since is the time of the log-in that a renewed token goes on from.
	Since time.Time `json:"since,omitzero"`
}

// chain identifies the log-in that a token goes back to.
func (t *Token) chain() string { return t.AuditIDs[len(t.AuditIDs)-1] }

func (t *Token) target() target { return target{t.ProjectID, t.DomainID} }

// roleGrant is a role a token carries, and the grant it has it from.
type roleGrant struct {
	RoleID string `json:"role_id"`
	Grant  string `json:"grant"`
}

// Serials are those of the objects a token rests on when it was issued. A token is worth something
// only while they are still the same: changing a password or disabling an object moves its serial,
// which invalidates every token with one write, however many there are.
type Serials struct {
	User        int64 `json:"user"`
	UserDomain  int64 `json:"user_domain"`
	Scope       int64 `json:"scope,omitempty"`        // project or domain
	ScopeDomain int64 `json:"scope_domain,omitempty"` // of the project
}

// AppCredential lets a program log in as a user on one project without the user's password.
type AppCredential struct {
	ID           string      `json:"id"`
	Name         string      `json:"name"` // unique for its user
	Description  string      `json:"description"`
	UserID       string      `json:"user_id"`
	ProjectID    string      `json:"project_id"`
	Roles        []roleGrant `json:"roles"`
	SecretHash   string      `json:"secret_hash"`          // argon2id, as clients may choose weak ones
	ExpiresAt    *time.Time  `json:"expires_at,omitempty"` // nil = never
	Unrestricted bool        `json:"unrestricted"`         // its tokens may make and delete application credentials
}

package identity

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"heddle/internal/api"
)

// authRequest is the body of POST /v3/auth/tokens (neutron-api §11).
type authRequest struct {
	Identity struct {
		Methods  []string        `json:"methods"`
		Password *passwordMethod `json:"password"`
		Token    *struct {
			ID string `json:"id"`
		} `json:"token"`
		AppCredential *struct {
			ID     string  `json:"id"`
			Name   string  `json:"name"`
			User   userRef `json:"user"`
			Secret string  `json:"secret"`
		} `json:"application_credential"`
	} `json:"identity"`
	Scope scope `json:"scope"`
}

// ref names an object by its id, or by a name that is unique in a domain.
type ref struct {
	ID     string     `json:"id"`
	Name   string     `json:"name"`
	Domain *domainRef `json:"domain"`
}

type domainRef struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type passwordMethod struct {
	User userRef `json:"user"`
}

type userRef struct {
	ref
	Password string `json:"password"`
}

// scope is the requested scope of a token. Without one it is the user's default project, unless the
// request is "unscoped".
type scope struct {
	Project  *ref
	Domain   *ref
	System   bool
	Unscoped bool
	given    bool
}

// UnmarshalJSON reads the forms a scope may have: "unscoped" as text, or an object with exactly one
// key.
func (s *scope) UnmarshalJSON(b []byte) error {
	*s = scope{given: true}
	if string(b) == "null" {
		s.given = false
		return nil
	}
	var text string
	if json.Unmarshal(b, &text) == nil {
		if text != "unscoped" {
			return api.Errorf(http.StatusBadRequest, "Invalid input for field 'scope': %q is no scope.", text)
		}
		s.Unscoped = true
		return nil
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	if len(o) != 1 {
		return api.Errorf(http.StatusBadRequest, "Invalid input for field 'scope': it names exactly one of project, domain, system, unscoped.")
	}
	for kind, raw := range o {
		switch kind {
		case "project":
			return json.Unmarshal(raw, &s.Project)
		case "domain":
			return json.Unmarshal(raw, &s.Domain)
		case "system":
			s.System = true
		case "unscoped":
			s.Unscoped = true
		default:
			return api.Errorf(http.StatusBadRequest, "Invalid input for field 'scope': %q is no scope this server knows.", kind)
		}
	}
	return nil
}

// readAuth reads and checks the body of a login.
func readAuth(r *http.Request) (*authRequest, error) {
	var body struct {
		Auth *authRequest `json:"auth"`
	}
	if err := api.ReadJSON(r, &body); err != nil {
		return nil, err
	}
	if body.Auth == nil {
		return nil, missing("auth", "request body")
	}
	if err := body.Auth.check(); err != nil {
		return nil, err
	}
	return body.Auth, nil
}

func (a *authRequest) check() error {
	id := a.Identity
	switch {
	case len(id.Methods) == 0:
		return missing("methods", "identity")
	case len(id.Methods) > 1:
		return api.Errorf(http.StatusBadRequest, "One authentication method at a time: password, token or application_credential.")
	}
	switch method := id.Methods[0]; method {
	case "password":
		if id.Password == nil {
			return missing("password", "identity")
		}
		return id.Password.User.check("user")
	case "token":
		if id.Token == nil || id.Token.ID == "" {
			return missing("id", "token")
		}
	case "application_credential":
		c := id.AppCredential
		switch {
		case c == nil:
			return missing("application_credential", "identity")
		case a.Scope.given:
			return api.Errorf(http.StatusBadRequest, "Application credentials cannot request a scope: they have one.")
		case c.ID != "":
			return nil
		case c.Name == "":
			return missing("id or name", "application_credential")
		}
		return c.User.check("user")
	default:
		return api.Errorf(http.StatusUnauthorized, "Attempted to authenticate with an unsupported method.")
	}
	if p := a.Scope.Project; p != nil {
		return p.check("project")
	}
	if d := a.Scope.Domain; d != nil && d.ID == "" && d.Name == "" {
		return missing("id or name", "domain")
	}
	return nil
}

// account returns what the log calls the account of a request with a password or another secret; ""
// for one with a token.
func (a *authRequest) account() string {
	id := a.Identity
	switch id.Methods[0] {
	case "password":
		return cmp.Or(id.Password.User.Name, id.Password.User.ID)
	case "application_credential":
		return "application credential " + cmp.Or(id.AppCredential.Name, id.AppCredential.ID)
	}
	return ""
}

// check wants an id, or a name with its domain.
func (n *ref) check(kind string) error {
	switch {
	case n.ID != "":
		return nil
	case n.Name == "":
		return missing("id or name", kind)
	case n.Domain == nil || n.Domain.ID == "" && n.Domain.Name == "":
		return missing("domain", kind)
	}
	return nil
}

// key names the user in the count of failed logins, when no such user is found.
func (n *ref) key() string {
	if n.ID != "" {
		return n.ID
	}
	return n.Domain.ID + "/" + n.Domain.Name + "/" + n.Name
}

func missing(what, where string) error {
	return api.Errorf(http.StatusBadRequest, "Expecting to find %s in %s. The server could not comply with the request since "+
		"it is either malformed or otherwise incorrect. The client is assumed to be in error.", what, where)
}

// methodsAfter are the methods of a token got by method from one that had before.
func methodsAfter(before []string, method string) []string {
	if slices.Contains(before, method) {
		return before
	}
	return append(slices.Clone(before), method)
}

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"heddle/internal/terminal"
)

// Neutron calls the Neutron API.
type Neutron struct {
	client  *gophercloud.ServiceClient
	project string // of the login
}

// Neutron returns a client of the Neutron API for objects as JSON.
func (s *Session) Neutron() (*Neutron, error) {
	c, err := s.Network()
	if err != nil {
		return nil, fmt.Errorf("the catalog lists no Neutron: %w", err)
	}
	return &Neutron{c, s.project()}, nil
}

// Project returns the id of the login's project, "" if it has none.
func (n *Neutron) Project() string { return n.project }

// Kind is a kind of object, spelled as the key of one in the API's bodies.
type Kind string

const (
	Agent             Kind = "agent"
	FloatingIP        Kind = "floatingip"
	Network           Kind = "network"
	Port              Kind = "port"
	Router            Kind = "router"
	SecurityGroup     Kind = "security_group"
	SecurityGroupRule Kind = "security_group_rule"
	Subnet            Kind = "subnet"
)

// collection returns the key of several objects.
func (k Kind) collection() string { return string(k) + "s" }

// path returns the path of the collection below /v2.0.
func (k Kind) path() string { return strings.ReplaceAll(k.collection(), "_", "-") }

// NameField returns the attribute by which people call an object of the kind.
func (k Kind) NameField() string {
	switch k {
	case FloatingIP:
		return "floating_ip_address"
	case SecurityGroupRule:
		return "id"
	}
	return "name"
}

func (k Kind) String() string {
	if k == FloatingIP {
		return "floating IP"
	}
	return strings.ReplaceAll(string(k), "_", " ")
}

// Object is an object of the API, as its JSON says; numbers are json.Number.
type Object map[string]any

// Text returns an attribute that is text, or "".
func (o Object) Text(attribute string) string {
	s, _ := o[attribute].(string)
	return s
}

// ID returns the object's id.
func (o Object) ID() string { return o.Text("id") }

// Refused is an answer of the API other than success.
type Refused struct {
	Status int // of HTTP
	Text   string
}

func (e *Refused) Error() string { return e.Text }

// IsGone reports whether an error says that the object does not exist, or that the caller may not
// see it.
func IsGone(err error) bool {
	var refused *Refused
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound
}

// List reads the objects that a query selects into out, a pointer to a slice.
func (n *Neutron) List(ctx context.Context, k Kind, query url.Values, out any) error {
	path := k.path()
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return n.call(ctx, http.MethodGet, path, nil, k.collection(), out)
}

// Get reads an object by its id into out. fields are the attributes to read; none: all.
func (n *Neutron) Get(ctx context.Context, k Kind, id string, out any, fields ...string) error {
	path := k.path() + "/" + url.PathEscape(id)
	if len(fields) > 0 {
		path += "?" + url.Values{"fields": fields}.Encode()
	}
	return n.call(ctx, http.MethodGet, path, nil, string(k), out)
}

// Create makes an object and returns it.
func (n *Neutron) Create(ctx context.Context, k Kind, attributes map[string]any) (made Object, err error) {
	err = n.call(ctx, http.MethodPost, k.path(), map[string]any{string(k): attributes}, string(k), &made)
	return made, err
}

// Update changes attributes of an object and returns it.
func (n *Neutron) Update(ctx context.Context, k Kind, id string, attributes map[string]any) (changed Object, err error) {
	err = n.call(ctx, http.MethodPut, k.path()+"/"+url.PathEscape(id), map[string]any{string(k): attributes}, string(k), &changed)
	return changed, err
}

// Act calls an action of an object, such as add_router_interface.
func (n *Neutron) Act(ctx context.Context, k Kind, id, action string, body map[string]any) error {
	return n.call(ctx, http.MethodPut, k.path()+"/"+url.PathEscape(id)+"/"+action, body, "", nil)
}

// Delete deletes an object.
func (n *Neutron) Delete(ctx context.Context, k Kind, id string) error {
	return n.call(ctx, http.MethodDelete, k.path()+"/"+url.PathEscape(id), nil, "", nil)
}

// call calls the API, and reads the value under key in the answer into out unless that is nil.
func (n *Neutron) call(ctx context.Context, method, path string, body any, key string, out any) error {
	res, err := n.client.Request(ctx, method, n.client.ServiceURL(path), &gophercloud.RequestOpts{
		JSONBody: body, KeepResponseBody: true,
		OkCodes: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent},
	})
	if err != nil {
		return refusal(err)
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	var answer map[string]json.RawMessage
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer[key] == nil {
		return fmt.Errorf("%s %s: the answer has no %s", method, path, key)
	}
	d := json.NewDecoder(strings.NewReader(string(answer[key])))
	d.UseNumber()
	return d.Decode(out)
}

// refusal turns an answer that the library takes for an error into Refused, with Neutron's words.
func refusal(err error) error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return err
	}
	var body struct{ NeutronError struct{ Message string } }
	if json.Unmarshal(answer.Body, &body) == nil && body.NeutronError.Message != "" {
		return &Refused{answer.Actual, terminal.Escape(body.NeutronError.Message)}
	}
	return &Refused{answer.Actual, fmt.Sprintf("%s %s: %d %s: %s", answer.Method, answer.URL, answer.Actual, http.StatusText(answer.Actual), errorText(answer.Body))}
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Find returns the id of the object with an id or name. The login's project comes first: names of
// other projects, which administrators see, count if it has none. Several objects may have a name:
// it is refused then, with their ids.
func (n *Neutron) Find(ctx context.Context, k Kind, idOrName string) (string, error) {
	own, others, err := n.find(ctx, k, idOrName)
	if len(own) == 0 {
		own = others
	}
	return one(k, idOrName, own, err)
}

// FindOwn is Find among the objects of the login's project alone.
func (n *Neutron) FindOwn(ctx context.Context, k Kind, idOrName string) (string, error) {
	own, others, err := n.find(ctx, k, idOrName)
	if err == nil && len(own) == 0 && len(others) > 0 {
		return "", fmt.Errorf("%s %s is not of this login's project", k, terminal.Escape(idOrName))
	}
	return one(k, idOrName, own, err)
}

// find returns the ids of objects with an id or name: those of the login's project, and others.
func (n *Neutron) find(ctx context.Context, k Kind, idOrName string) (own, others []string, err error) {
	if idOrName == "" {
		return nil, nil, fmt.Errorf("which %s? the name is empty", k)
	}
	var found []Object
	if uuid.MatchString(idOrName) {
		var o Object
		switch err := n.Get(ctx, k, idOrName, &o, "id", "project_id"); {
		case err == nil:
			found = []Object{o}
		case !IsGone(err):
			return nil, nil, err
		}
	}
	if len(found) == 0 {
		if err := n.List(ctx, k, url.Values{k.NameField(): {idOrName}, "fields": {"id", "project_id"}}, &found); err != nil {
			return nil, nil, err
		}
	}
	for _, o := range found {
		if o.Text("project_id") == n.project {
			own = append(own, o.ID())
		} else {
			others = append(others, o.ID())
		}
	}
	return own, others, nil
}

// one returns the only id that was found.
func one(k Kind, idOrName string, ids []string, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case len(ids) == 1:
		return ids[0], nil
	case len(ids) == 0:
		return "", fmt.Errorf("there is no %s %s", k, terminal.Escape(idOrName))
	}
	return "", fmt.Errorf("%d %ss are called %s: give one's id: %s", len(ids), k, terminal.Escape(idOrName), strings.Join(ids, ", "))
}

// IsID reports whether a text has the form of an object's id.
func IsID(text string) bool { return uuid.MatchString(text) }

package neutron

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Access is the group that may set or see an attribute, besides admins.
type Access uint8

const (
	// Everyone who may make, change or see the object.
	Everyone Access = iota
	// NetworkOwner is the project of the network that the object is on.
	NetworkOwner
	// AdminOnly is nobody but admins.
	AdminOnly
	// DataPlaneIntegrator is a caller with the role data_plane_integrator.
	DataPlaneIntegrator
	// NotWildcard is everyone for any value but EveryProject, which only admins may set.
	NotWildcard
	// NetworkOwnerOrService is NetworkOwner and a caller with the role advsvc.
	NetworkOwnerOrService
	// AdvancedService is a caller with the role advsvc.
	AdvancedService
)

func (a Access) String() string {
	return [...]string{"everyone", "network owner", "admin", "role data_plane_integrator", "* by admin", "network owner, role advsvc", "role advsvc"}[a]
}

// unset is the Default of an attribute that create leaves unspecified: the server decides.
type unset struct{}

// Attribute is one row of a resource's attribute table: when and by whom it may be set, its format
// and its uses. Defaults and order are the reference's (neutron-api §3–6), because requests are
// answered with the first fault found.
type Attribute struct {
	Name    string
	Create  bool   // may be set at create
	Update  bool   // may be set at update
	Default any    // its value at create when not given; nil is null, unset{} leaves it out, required{} and asNull{} refuse
	Later   string // what is missing to give it another value than Default; "" = nothing

	CreateBy, UpdateBy, See Access
	Policed                 bool // Neutron names it in the text of a refusal

	Filter, Sort bool
	Hidden       bool // never answered: it is written only, or a filter's name
	Computed     bool // costs a look at other objects
	Secret       bool // records of requests do not repeat it

	Type string // for readers of the documentation
	Doc  string

	parse parser
}

type required struct{}

// asNull is the Default of an attribute that is required too, and whose absence is refused as null
// is.
type asNull struct{}

// Required reports whether a create must name the attribute.
func (a *Attribute) Required() bool { return a.Default == required{} }

// InBody reports whether bodies carry the attribute; the rest are names of filters.
func (a *Attribute) InBody() bool { return a.parse != nil || !a.Hidden }

// Keys returns the keys of the objects in a list attribute, nil if its entries are no objects.
func (a *Attribute) Keys() []string {
	keys, isList := strings.CutPrefix(a.Type, "list of {")
	if !isList {
		return nil
	}
	return strings.Split(strings.TrimSuffix(keys, "}"), ", ")
}

// DefaultText returns the default as JSON, "required", or "" if the server decides.
func (a *Attribute) DefaultText() string {
	switch d := a.Default.(type) {
	case required, asNull:
		return "required"
	case unset:
		return ""
	case nil:
		return "null"
	case string:
		return `"` + d + `"`
	case []string:
		return "[]"
	default:
		return strings.ToLower(pyRepr(d))
	}
}

// Op is the operation of a request.
type Op uint8

// The operations that carry values or change an object.
const (
	Create Op = iota + 1
	Update
	Delete
)

func (o Op) String() string {
	return [...]string{Create: "create", Update: "update", Delete: "delete"}[o]
}

// Parse reads the attributes of a create or an update (decoded with json.Number). It refuses
// unknown, missing, read-only and malformed ones in Neutron's order and words, adds the defaults of
// a create, and normalises values. body is not changed. Checks against others are the operation's.
func Parse(c Caller, r Resource, op Op, body map[string]any) (Values, error) {
	table := r.Attributes()
	if body = maps.Clone(body); body == nil {
		body = map[string]any{}
	}
	if r.owned() {
		if err := settleProject(c, op, body); err != nil {
			return nil, err
		}
	}
	if err := refuseUnknown(table, body); err != nil {
		return nil, err
	}
	given, err := checkGiven(table, op, body)
	if err != nil {
		return nil, err
	}
	v := make(Values, len(given))
	for _, a := range given {
		raw, sent := body[a.Name]
		if !sent && a.Default != any(asNull{}) {
			v[a.Name] = a.Default
			continue
		}
		if v[a.Name], err = a.read(raw); err != nil {
			return nil, err
		}
	}
	delete(v, "tenant_id") // the same as project_id
	return v, nil
}

// settleProject checks that project_id and tenant_id agree, and fills in the caller's project.
func settleProject(c Caller, op Op, body map[string]any) error {
	tenant, hasTenant := body["tenant_id"]
	project, hasProject := body["project_id"]
	switch {
	case hasTenant && hasProject && !reflect.DeepEqual(tenant, project):
		return badRequest("'project_id' and 'tenant_id' do not match")
	case hasTenant:
		project = tenant
	case hasProject:
	case op != Create:
		return nil
	case c.ProjectID == "":
		return badRequest("Running without keystone AuthN requires that tenant_id is specified")
	default:
		project = c.ProjectID
	}
	if project != any(c.ProjectID) && !c.Admin() && !c.AdvancedService() {
		return badRequest("Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin or advsvc privileges")
	}
	body["tenant_id"], body["project_id"] = project, project
	return nil
}

func refuseUnknown(table []*Attribute, body map[string]any) error {
	known := make(map[string]bool, len(table))
	for _, a := range table {
		known[a.Name] = a.InBody()
	}
	var unknown []string
	for name := range body {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	if unknown == nil {
		return nil
	}
	slices.Sort(unknown)
	return badRequest("Unrecognized attribute(s) '%s'", strings.Join(unknown, ", "))
}

// checkGiven returns the attributes that the request gives a value, in the table's order.
func checkGiven(table []*Attribute, op Op, body map[string]any) ([]*Attribute, error) {
	var given []*Attribute
	for _, a := range table {
		_, sent := body[a.Name]
		switch {
		case op == Create && sent && !a.Create:
			return nil, badRequest("Attribute '%s' not allowed in POST", a.Name)
		case op == Create && a.Create && !sent && a.Required():
			return nil, badRequest("Failed to parse request. Required attribute '%s' not specified", a.Name)
		case op == Update && sent && !a.Update:
			return nil, badRequest("Cannot update read-only attribute %s", a.Name)
		case sent, op == Create && a.Create && a.Default != any(unset{}):
			given = append(given, a)
		}
	}
	return given, nil
}

// read normalises a value that a client sent.
func (a *Attribute) read(raw any) (any, error) {
	v, err := a.parse(raw)
	var why reason
	if errors.As(err, &why) {
		return nil, badRequest("Invalid input for %s. Reason: %s.", a.Name, why)
	}
	if err != nil {
		return nil, err
	}
	if a.Later != "" && !reflect.DeepEqual(v, a.Default) {
		return nil, badRequest("Invalid input for %s. Reason: '%s' is not supported: %s.", a.Name, pyText(raw), a.Later)
	}
	return v, nil
}

package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/domains"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"
)

// Outside clients as witnesses, over a listening server.

func (w *world) gophercloud(o gophercloud.AuthOptions) (*gophercloud.ProviderClient, *gophercloud.ServiceClient, error) {
	o.IdentityEndpoint = w.url
	provider, err := openstack.AuthenticatedClient(w.t.Context(), o)
	if err != nil {
		return nil, nil, err
	}
	client, err := openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{Region: "RegionOne"})
	return provider, client, err
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestGophercloud(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t)
	provider, client, err := w.gophercloud(gophercloud.AuthOptions{Username: "admin", Password: adminPassword, TenantName: "admin", DomainID: "default"})
	if err != nil {
		t.Fatal(err)
	}
	catalog := must[*tokens.ServiceCatalog](t)(provider.GetAuthResult().(tokens.CreateResult).ExtractServiceCatalog())
	if len(catalog.Entries) != 2 || catalog.Entries[1].Endpoints[0].URL != "http://127.0.0.1:9696" {
		t.Errorf("catalog %+v", catalog)
	}

	// Given the address without version, the client finds it.
	root := gophercloud.AuthOptions{IdentityEndpoint: strings.TrimSuffix(w.url, "v3"), Username: "admin", Password: adminPassword, TenantName: "admin", DomainID: "default"}
	if _, err := openstack.AuthenticatedClient(ctx, root); err != nil {
		t.Errorf("by %s: %v", root.IdentityEndpoint, err)
	}

	project := must[*projects.Project](t)(projects.Create(ctx, client, projects.CreateOpts{Name: "gopher", Description: "d", DomainID: "default",
		Tags: []string{"b", "a"}, Extra: map[string]any{"colour": "red"}}).Extract())
	if project.ParentID != "default" || !project.Enabled || !slices.Equal(project.Tags, []string{"a", "b"}) || project.Extra["colour"] != "red" {
		t.Errorf("project %+v", project)
	}
	off, name := false, "gopher2"
	project = must[*projects.Project](t)(projects.Update(ctx, client, project.ID, projects.UpdateOpts{Name: name, Description: &name}).Extract())
	if project.Name != name || project.Description != name {
		t.Errorf("project updated: %+v", project)
	}
	pages := must[[]projects.Project](t)(listProjects(ctx, client, projects.ListOpts{Name: name, Tags: "a"}))
	if len(pages) != 1 || pages[0].ID != project.ID {
		t.Errorf("projects named %s: %+v", name, pages)
	}
	if left := must[[]projects.Project](t)(listProjects(ctx, client, projects.ListOpts{NotTags: "a,b", Filters: map[string]string{"name__icontains": "GOPHER"}})); len(left) != 0 {
		t.Errorf("projects without the tags: %+v", left)
	}

	user := must[*users.User](t)(users.Create(ctx, client, users.CreateOpts{Name: "gus", Password: "one", DefaultProjectID: project.ID,
		DomainID: "default", Extra: map[string]any{"email": "gus@example.com"}, Options: map[users.Option]any{users.IgnorePasswordExpiry: true}}).Extract())
	if user.DefaultProjectID != project.ID || user.Extra["email"] != "gus@example.com" {
		t.Errorf("user %+v", user)
	}
	role := must[*roles.Role](t)(roles.Create(ctx, client, roles.CreateOpts{Name: "auditor"}).Extract())
	if err := roles.Assign(ctx, client, role.ID, roles.AssignOpts{UserID: user.ID, ProjectID: project.ID}).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	assigned := must[[]roles.RoleAssignment](t)(listAssignments(ctx, client, roles.ListAssignmentsOpts{UserID: user.ID, IncludeNames: ptr(true), Effective: ptr(true)}))
	if len(assigned) != 1 || assigned[0].Role.Name != "auditor" || assigned[0].Scope.Project.Name != name || assigned[0].User.Domain.Name != "Default" {
		t.Errorf("assignments %+v", assigned)
	}

	// As that user, without a scope: his default project is taken.
	_, own, err := w.gophercloud(gophercloud.AuthOptions{UserID: user.ID, Password: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := tokens.Validate(ctx, client, own.Token()); err != nil || !ok {
		t.Errorf("validate: %v, %v", ok, err)
	}
	seen := must[*tokens.Project](t)(tokens.Get(ctx, client, own.Token()).ExtractProject())
	if seen.ID != project.ID {
		t.Errorf("token is for %+v", seen)
	}
	cred := must[*applicationcredentials.ApplicationCredential](t)(applicationcredentials.Create(ctx, own, user.ID,
		applicationcredentials.CreateOpts{Name: "robot", Roles: []applicationcredentials.Role{{Name: "auditor"}}}).Extract())
	_, robot, err := w.gophercloud(gophercloud.AuthOptions{ApplicationCredentialID: cred.ID, ApplicationCredentialSecret: cred.Secret})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := applicationcredentials.Create(ctx, robot, user.ID, applicationcredentials.CreateOpts{Name: "spawn"}).Extract(); !gophercloud.ResponseCodeIs(err, 403) {
		t.Errorf("a restricted credential makes another: %v", err)
	}
	if _, _, err := w.gophercloud(gophercloud.AuthOptions{ApplicationCredentialName: "robot", Username: "gus", DomainID: "default",
		ApplicationCredentialSecret: cred.Secret}); err != nil {
		t.Errorf("credential by name: %v", err)
	}
	if err := applicationcredentials.Delete(ctx, own, user.ID, cred.ID).ExtractErr(); err != nil || w.works(robot.Token()) {
		t.Errorf("credential deleted: %v; its token works: %v", err, w.works(robot.Token()))
	}

	if err := users.ChangePassword(ctx, own, user.ID, users.ChangePasswordOpts{OriginalPassword: "one", Password: "two"}).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if ok, err := tokens.Validate(ctx, client, own.Token()); ok || err != nil {
		t.Errorf("the token from before the change: %v, %v", ok, err)
	}
	token := w.login("gus", "two", name)
	if err := tokens.Revoke(ctx, client, token).Err; err != nil || w.works(token) {
		t.Errorf("revoke: %v; works: %v", err, w.works(token))
	}

	if err := roles.Unassign(ctx, client, role.ID, roles.UnassignOpts{UserID: user.ID, ProjectID: project.ID}).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if err := roles.Unassign(ctx, client, role.ID, roles.UnassignOpts{UserID: user.ID, ProjectID: project.ID}).ExtractErr(); !gophercloud.ResponseCodeIs(err, 404) {
		t.Errorf("taken back twice: %v", err)
	}
	must[*users.User](t)(users.Update(ctx, client, user.ID, users.UpdateOpts{Enabled: &off}).Extract())
	for what, err := range map[string]error{
		"role": roles.Delete(ctx, client, role.ID).ExtractErr(), "user": users.Delete(ctx, client, user.ID).ExtractErr(),
		"project": projects.Delete(ctx, client, project.ID).ExtractErr(),
	} {
		if err != nil {
			t.Errorf("delete %s: %v", what, err)
		}
	}

	// A domain of its own, with all that is in it.
	domain := must[*domains.Domain](t)(domains.Create(ctx, client, domains.CreateOpts{Name: "elsewhere"}).Extract())
	must[*projects.Project](t)(projects.Create(ctx, client, projects.CreateOpts{Name: "admin", DomainID: domain.ID}).Extract())
	if err := domains.Delete(ctx, client, domain.ID).ExtractErr(); !gophercloud.ResponseCodeIs(err, 403) {
		t.Errorf("an enabled domain is deleted: %v", err)
	}
	must[*domains.Domain](t)(domains.Update(ctx, client, domain.ID, domains.UpdateOpts{Enabled: &off}).Extract())
	if err := domains.Delete(ctx, client, domain.ID).ExtractErr(); err != nil {
		t.Error(err)
	}
	if left := must[[]projects.Project](t)(listProjects(ctx, client, nil)); len(left) != 1 {
		t.Errorf("projects left: %+v", left)
	}

	served := must[[]services.Service](t)(func() ([]services.Service, error) {
		p, err := services.List(client, services.ListOpts{ServiceType: "network"}).AllPages(ctx)
		if err != nil {
			return nil, err
		}
		return services.ExtractServices(p)
	}())
	if len(served) != 1 {
		t.Fatalf("network services: %+v", served)
	}
	ends := must[[]endpoints.Endpoint](t)(func() ([]endpoints.Endpoint, error) {
		p, err := endpoints.List(client, endpoints.ListOpts{ServiceID: served[0].ID, Availability: gophercloud.AvailabilityPublic}).AllPages(ctx)
		if err != nil {
			return nil, err
		}
		return endpoints.ExtractEndpoints(p)
	}())
	if len(ends) != 1 || ends[0].URL != "http://127.0.0.1:9696" {
		t.Errorf("its public endpoints: %+v", ends)
	}
}

func ptr[T any](v T) *T { return &v }

func listProjects(ctx context.Context, c *gophercloud.ServiceClient, o projects.ListOptsBuilder) ([]projects.Project, error) {
	p, err := projects.List(c, o).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return projects.ExtractProjects(p)
}

func listAssignments(ctx context.Context, c *gophercloud.ServiceClient, o roles.ListAssignmentsOpts) ([]roles.RoleAssignment, error) {
	p, err := roles.ListAssignments(c, o).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return roles.ExtractRoleAssignments(p)
}

// openstackCLI runs commands in one session of the openstack command, which takes a second to
// start, and returns their JSON answers in order. With the credentials that Bootstrap wrote.
func (w *world) openstackCLI(commands ...string) (answers []any, problems string) {
	w.t.Helper()
	program, err := exec.LookPath("openstack")
	if err != nil {
		w.t.Skip("the openstack command is missing: apt-get install python3-openstackclient")
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + w.dir, "OS_CLIENT_CONFIG_FILE=" + filepath.Join(w.dir, "clouds.yaml"), "OS_CLOUD=heddle"}
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("openstack: %v\n%s%s", err, out.String(), errs.String())
	}
	for d := json.NewDecoder(&out); ; {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return answers, errs.String()
		} else if err != nil {
			w.t.Fatalf("openstack printed no JSON: %v\n%s%s", err, out.String(), errs.String())
		}
		answers = append(answers, v)
	}
}

// dig finds a value in a JSON answer by names and numbers.
func dig(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func TestOpenStackCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type expected struct {
		command string
		path    []any // into the JSON answer; nil = it prints none
		want    any
	}
	script := []expected{
		{"project create cli --description words --tag t -f json", []any{"name"}, "cli"},
		{"project create --or-show cli --domain default -f json", []any{"description"}, "words"},
		{"project show cli -f json", []any{"tags", 0}, "t"},
		{"project set cli --description others", nil, nil},
		{"project list -f json", []any{1, "Name"}, nil},
		{"user create --domain default --password pw --project cli --email cli@example.com cliuser -f json", []any{"email"}, "cli@example.com"},
		{"user set cliuser --description person --enable", nil, nil},
		{"user show cliuser -f json", []any{"description"}, "person"},
		{"user list --domain default -f json", []any{1, "Name"}, nil},
		{"role add --user cliuser --project cli member", nil, nil},
		{"role assignment list --names --user cliuser -f json", []any{0, "Project"}, "cli@Default"},
		{"role assignment list --project cli --effective -f json", []any{0, "Inherited"}, false},
		{"user list --project cli -f json", []any{0, "Name"}, "cliuser"},
		{"project list --user cliuser -f json", []any{0, "Name"}, "cli"},
		{"role remove --user cliuser --project cli member", nil, nil},
		{"role create extra -f json", []any{"name"}, "extra"},
		{"role list -f json", []any{3, "Name"}, nil},
		{"role show member -f json", []any{"name"}, "member"},
		{"role delete extra", nil, nil},
		{"domain list -f json", []any{0, "ID"}, "default"},
		{"domain show default -f json", []any{"name"}, "Default"},
		{"service list -f json", []any{1, "Type"}, "network"},
		{"service show network -f json", []any{"name"}, "neutron"},
		{"endpoint list --service network --interface public -f json", []any{0, "URL"}, "http://127.0.0.1:9696"},
		{"region list -f json", []any{0, "Region"}, "RegionOne"},
		{"catalog list -f json", []any{0, "Type"}, "identity"},
		{"catalog show network -f json", []any{"type"}, "network"},
		{"application credential create robot -f json", []any{"name"}, "robot"},
		{"application credential list -f json", []any{0, "Name"}, "robot"},
		{"application credential delete robot", nil, nil},
		{"user delete cliuser", nil, nil},
		{"project delete cli", nil, nil},
		{"token issue -f json", []any{"project_id"}, nil},
	}
	var commands []string
	for _, e := range script {
		commands = append(commands, e.command)
	}
	answers, problems := w.openstackCLI(commands...)
	if problems != "" {
		t.Errorf("openstack complained: %s", problems)
	}
	for _, e := range script {
		if e.path == nil {
			continue
		}
		if len(answers) == 0 {
			t.Fatalf("no answer to %q", e.command)
		}
		got := dig(answers[0], e.path...)
		if got == nil || e.want != nil && got != e.want {
			t.Errorf("%s\nanswered %v at %v, want %v in %v", e.command, got, e.path, e.want, answers[0])
		}
		answers = answers[1:]
	}
	if a := w.admin(200, "GET", "/projects?name=cli", ""); a.count("projects") != 0 {
		t.Errorf("left behind: %s", a.body)
	}
}

// TestOpenStackCommandAsMember: a user without rights sees only what is the user's own.
func TestOpenStackCommandAsMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ann", "pw", "member")
	clouds := must[[]byte](t)(os.ReadFile(filepath.Join(w.dir, "clouds.yaml")))
	text := strings.NewReplacer("username: admin", "username: ann", "project_name: admin", "project_name: ann", adminPassword, "pw").Replace(string(clouds))
	if err := os.WriteFile(filepath.Join(w.dir, "clouds.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	answers, problems := w.openstackCLI("project list -f json", "user list -f json", "user password set --password longer --original-password pw")
	if got := dig(answers[0], 0, "Name"); got != "ann" || len(answers) != 1 {
		t.Errorf("own projects: %v", answers)
	}
	if !strings.Contains(problems, "identity:list_users") {
		t.Errorf("list users: %s", problems)
	}
	w.login("ann", "longer", "ann")
}

func TestCloudsFilesArePrivate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"clouds.yaml", "openrc"} {
		info := must[os.FileInfo](t)(os.Stat(filepath.Join(w.dir, name)))
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
	out := must[[]byte](t)(exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf(". %s/openrc; echo $OS_AUTH_URL $OS_USERNAME $OS_PASSWORD $OS_PROJECT_NAME", w.dir)).Output())
	if got, want := string(out), w.url+" admin "+adminPassword+" admin\n"; got != want {
		t.Errorf("openrc gives %q, want %q", got, want)
	}
	if shellQuote("it's") != `'it'\''s'` {
		t.Errorf("quoted: %s", shellQuote("it's"))
	}
}

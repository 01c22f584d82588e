package identity

import (
	"strings"
	"testing"
)

func TestProjectTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, project := w.user("ann", "pw", "member")
	tags := "/projects/" + project + "/tags"
	w.admin(201, "PUT", tags+"/blue", "")
	w.admin(201, "PUT", tags+"/blue", "")
	w.admin(204, "GET", tags+"/blue", "")
	w.admin(404, "GET", tags+"/red", "")
	w.admin(400, "PUT", tags, `{"tags":["a,b"]}`)
	w.admin(400, "PUT", tags, `{}`)
	w.admin(400, "PUT", tags+"/"+strings.Repeat("x", maxLongName+1), "")
	if a := w.admin(200, "PUT", tags, `{"tags":["two","one","two"]}`); a.count("tags") != 2 || a.text("tags.0") != "one" {
		t.Errorf("tags replaced: %s", a.body)
	}
	w.admin(204, "DELETE", tags+"/one", "")
	w.admin(404, "DELETE", tags+"/one", "")
	if a := w.admin(200, "GET", "/projects?tags=two", ""); a.count("projects") != 1 || a.text("projects.0.tags.0") != "two" {
		t.Errorf("projects by tag: %s", a.body)
	}
	token := w.login("ann", "pw", "ann")
	if a := w.call(token, "GET", tags, ""); a.status != 200 || a.text("tags.0") != "two" {
		t.Errorf("a member looks: %d %s", a.status, a.body)
	}
	if a := w.call(token, "DELETE", tags, ""); a.status != 403 {
		t.Errorf("a member deletes: %d %s", a.status, a.body)
	}
	w.admin(204, "DELETE", tags, "")
	if a := w.admin(200, "GET", tags, ""); a.count("tags") != 0 {
		t.Errorf("tags left: %s", a.body)
	}
}

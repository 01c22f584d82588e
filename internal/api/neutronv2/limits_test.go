package neutronv2_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"heddle/internal/api"
	"heddle/internal/control"
)

// TestTextIsUnicode: what encoding/json would replace in silence is refused by the name of the
// attribute.
func TestTextIsUnicode(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	net := s.create(t, "member", "networks", `{"network":{"name":"\ud83d\ude00 é"}}`)
	if net["name"] != "😀 é" {
		t.Errorf("name: %q", net["name"])
	}
	path := "/networks/" + net["id"].(string)
	for _, tt := range []struct{ method, path, body, field string }{
		{"POST", "/networks", `{"network":{"name":"a\ud800b"}}`, "name"},
		{"POST", "/networks", `{"networks":[{"name":"a"},{"description":"\udc00"}]}`, "description"},
		{"PUT", path, `{"network":{"name":"\ud83d\ud83d"}}`, "name"},
		{"PUT", path, "{\"network\":{\"name\":\"\xff\"}}", "name"},
		{"PUT", path + "/tags", `{"tags":["a","\ud800"]}`, "tags"},
		{"POST", "/ports", `{"port":{"network_id":"x","extra_dhcp_opts":[{"opt_name":"x","opt_value":"\ud800"}]}}`, "extra_dhcp_opts"},
	} {
		a := s.must(t, http.StatusBadRequest, "member", tt.method, tt.path, tt.body)
		if e := first(a.doc()["NeutronError"]); !strings.HasPrefix(fmt.Sprint(e["message"]), "Invalid input for "+tt.field+". Reason: ") {
			t.Errorf("%s: %s", tt.body, a.body)
		}
	}
	if a := s.must(t, http.StatusOK, "member", http.MethodGet, "/networks", nil); len(list(a.doc()["networks"])) != 1 {
		t.Errorf("left behind: %s", a.body)
	}
}

// stream posts a body that a function writes, and returns the answer, which may come before the
// body's end.
func (s *server) stream(t *testing.T, who, path string, write func(w io.Writer) error) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_ = w.CloseWithError(write(w)) // the reader has what it wants, or an error of its own
	}()
	defer func() {
		_ = r.Close()
		<-wrote
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v2.0"+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(api.TokenHeader, who)
	res, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, b}
}

// TestListsAreCountedAsTheyArrive: a list that is too long, or longer than the quota, is refused
// while the client would still send, and nothing of it is made.
func TestListsAreCountedAsTheyArrive(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.create(t, "member", "networks", `{"network":{}}`) // the quota is 100
	endless := func(w io.Writer) error {
		if _, err := io.WriteString(w, `{"networks":[{}`); err != nil {
			return err
		}
		for range 1 << 20 { // a bound: the server stops long before
			if _, err := io.WriteString(w, `,{"name":"one more"}`); err != nil {
				return err
			}
		}
		return nil
	}
	if a := s.stream(t, "member", "/networks", endless); a.status != http.StatusConflict || !strings.Contains(string(a.body), "Quota exceeded for resources: ['network'].") {
		t.Errorf("over quota: %d %s", a.status, a.body)
	}
	if a := s.stream(t, "admin", "/networks", endless); a.status != http.StatusRequestEntityTooLarge || !strings.Contains(string(a.body), "more than 1000 networks") {
		t.Errorf("too many: %d %s", a.status, a.body)
	}
	if a := s.must(t, http.StatusOK, "admin", http.MethodGet, "/networks", nil); len(list(a.doc()["networks"])) != 1 {
		t.Errorf("left behind: %s", a.body)
	}
	s.must(t, http.StatusCreated, "member", http.MethodPost, "/networks", `{"networks":[`+strings.TrimSuffix(strings.Repeat(`{},`, 99), ",")+`]}`)
	a := s.must(t, http.StatusConflict, "member", http.MethodPost, "/networks", `{"networks":[{},{}]}`)
	if !strings.Contains(string(a.body), "OverQuota") {
		t.Errorf("full: %s", a.body)
	}
}

// TestAnswerReachesTheSender: a client that sends its whole body before it looks for an answer gets
// the answer, not a reset connection, whatever is refused and however the size is told.
func TestAnswerReachesTheSender(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	addr := strings.TrimPrefix(s.url, "http://")
	const size = 24 << 20
	for _, tt := range []struct {
		name, token, header, body string
		status                    int
	}{
		{"length", "member", fmt.Sprintf("Content-Length: %d\r\n", size), strings.Repeat("{", size), 413},
		{"chunked", "member", "Transfer-Encoding: chunked\r\n", chunk + strings.Repeat(chunk, size/chunkSize) + "0\r\n\r\n", 413},
		{"no token", "", fmt.Sprintf("Content-Length: %d\r\n", size), strings.Repeat("{", size), 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, "POST /v2.0/networks HTTP/1.1\r\nHost: x\r\nX-Auth-Token: %s\r\n%s\r\n", tt.token, tt.header); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, tt.body); err != nil {
				t.Fatalf("sending: %v", err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("answer: %v", err)
			}
			defer func() { _ = res.Body.Close() }()
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tt.status || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %s, %v", res.StatusCode, body, err)
			}
		})
	}
}

const chunkSize = 64 << 10

var chunk = fmt.Sprintf("%x\r\n%s\r\n", chunkSize, strings.Repeat(" ", chunkSize))

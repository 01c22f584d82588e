package ovsdb

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a connection and the server's end of its stream.
func pipe(t *testing.T, set ...func(*Options)) (*connection, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	o := Options{MaxMessage: 1000, Probe: time.Minute, DeadAfter: time.Hour}
	for _, f := range set {
		f(&o)
	}
	c := connect(near, o, func(string, json.RawMessage) error { return nil }, func(error) {})
	t.Cleanup(func() { c.close(io.EOF); far.Close(); c.wait() })
	return c, far
}

// TestBrokenServers lists what ends a connection, with its cause, before anything else happens.
func TestBrokenServers(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		"":                              "closed the connection",
		"}":                             "invalid character",
		`{"id":`:                        "unexpected EOF",
		`[1]`:                           "cannot unmarshal array",
		`{"id":"7","result":1}`:         "never made",
		`{"id":{},"result":1}`:          "never made",
		`{"id":null,"result":1}`:        "never made",
		strings.Repeat("[", 900):        "unexpected EOF",
		`"` + strings.Repeat("x", 2000): "longer than is allowed",
		strings.Repeat(" ", 2000):       "longer than is allowed",
	} {
		c, server := pipe(t)
		go func() { server.Write([]byte(sent)); server.Close() }()
		<-c.closed
		if !strings.Contains(c.cause.Error(), want) {
			t.Errorf("%.30q: %v, want %q", sent, c.cause, want)
		}
	}
}

// TestServersMayAsk answers echo with what it carries, and other requests with an error.
func TestServersMayAsk(t *testing.T) {
	t.Parallel()
	_, server := pipe(t)
	answers := json.NewDecoder(server)
	for asked, want := range map[string]string{
		`{"id":"echo","method":"echo","params":["are you there"]}`: `{"id":"echo","result":["are you there"],"error":null}`,
		`{"id":3,"method":"dance","params":[]}`:                    `{"id":3,"result":null,"error":"unknown method"}`,
	} {
		go server.Write([]byte(asked))
		var got json.RawMessage
		if err := answers.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is answered by %s, want %s", asked, got, want)
		}
	}
}

// TestAnswers maps answers to their requests, whatever their order, and ignores those that come too
// late.
func TestAnswers(t *testing.T) {
	t.Parallel()
	c, server := pipe(t)
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	gone, giveUp := context.WithCancel(soon)
	go func() {
		in := json.NewDecoder(server)
		for range 4 {
			var m message
			if in.Decode(&m) != nil {
				return
			}
			var reply string
			switch m.Method {
			case "late":
				giveUp() // not before: half a request would end the connection
				continue
			case "good":
				reply = fmt.Sprintf(`{"id":1,"result":"late"}{"id":%s,"result":"yes"}`, m.ID)
			case "text":
				reply = fmt.Sprintf(`{"id":%s,"error":"unknown method"}`, m.ID)
			case "object":
				reply = fmt.Sprintf(`{"id":%s,"error":{"error":"unknown database","details":"Paint"},"result":null}`, m.ID)
			}
			server.Write([]byte(reply))
		}
	}()
	if _, err := c.call(gone, "late", []any{}, nil); err == nil {
		t.Error("late: answered")
	}
	if raw, err := c.call(soon, "good", []any{}, nil); err != nil || string(raw) != `"yes"` {
		t.Errorf("good: %s, %v", raw, err)
	}
	if _, err := c.call(soon, "text", []any{}, nil); err == nil || err.Error() != "unknown method" {
		t.Errorf("text: %v", err)
	}
	if _, err := c.call(soon, "object", []any{}, nil); err == nil || err.Error() != "unknown database: Paint" {
		t.Errorf("object: %v", err)
	}
}

// TestSilenceIsProbed asks a silent server for a sign of life, and takes it for lost when it gives
// none.
func TestSilenceIsProbed(t *testing.T) {
	t.Parallel()
	c, server := pipe(t, func(o *Options) { o.Probe, o.DeadAfter = 200*time.Millisecond, 400*time.Millisecond })
	in := json.NewDecoder(bufio.NewReader(server))
	for range 3 {
		var m message
		if err := in.Decode(&m); err != nil || m.Method != "echo" {
			t.Fatalf("%s, %v; want echo", m.Method, err)
		}
		fmt.Fprintf(server, `{"id":%s,"result":[],"error":null}`, m.ID)
	}
	go io.Copy(io.Discard, server)
	<-c.closed
	if !strings.Contains(c.cause.Error(), "has not answered") {
		t.Fatal(c.cause)
	}
}

// TestSilence counts probe intervals by a clock of its own: a server that stops answering is said
// to be silent after two of them, and to answer as soon as it does; the connection lasts until it
// was silent for DeadAfter. Nothing here depends on what the wall clock says.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const probe, dead = 600 * time.Millisecond, 4 * time.Second
		type news struct {
			at     time.Duration
			silent bool
		}
		heard := make(chan news, 10)
		near, far := net.Pipe()
		begun := time.Now()
		c := connect(near, Options{MaxMessage: 1000, Probe: probe, DeadAfter: dead}, func(string, json.RawMessage) error { return nil },
			func(why error) { heard <- news{time.Since(begun), why != nil} })
		in := json.NewDecoder(far)
		answer := func() {
			t.Helper()
			var m message
			if err := in.Decode(&m); err != nil || m.Method != "echo" {
				t.Errorf("%s, %v; want echo", m.Method, err)
			}
			fmt.Fprintf(far, `{"id":%s,"result":[],"error":null}`, m.ID)
		}
		for range 3 {
			answer()
		}
		last := time.Since(begun)
		if last != 3*probe || len(heard) > 0 {
			t.Errorf("the third answer was at %s, and silence was reported %d times", last, len(heard))
		}
		var m message
		if err := in.Decode(&m); err != nil { // a probe that is not answered in time
			t.Error(err)
		}
		if got, want := <-heard, (news{last + 2*probe, true}); got != want {
			t.Errorf("reported %v, want %v", got, want)
		}
		fmt.Fprintf(far, `{"id":%s,"result":[],"error":null}`, m.ID)
		again := time.Since(begun)
		if got, want := <-heard, (news{again, false}); got != want {
			t.Errorf("reported %v, want %v", got, want)
		}
		go io.Copy(io.Discard, far)
		<-c.closed
		if silent := time.Since(begun) - again; silent != dead || !strings.Contains(c.cause.Error(), "has not answered for 4s") {
			t.Errorf("given up after %s: %v", silent, c.cause)
		}
		c.wait()
		far.Close()
	})
}

// FuzzConnection reads whatever a server sends.
func FuzzConnection(f *testing.F) {
	for _, seed := range []string{`{"id":1,"result":[true,"",{}]}`, `{"method":"update","params":[null,{}]}{"id":"echo","method":"echo","params":[]}`, `{"id":1,"error":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		near, far := net.Pipe()
		c := connect(near, Options{MaxMessage: 1 << 16, Probe: time.Minute, DeadAfter: time.Hour}, func(string, json.RawMessage) error { return nil }, func(error) {})
		go io.Copy(io.Discard, far)
		_, _ = c.request(context.Background(), "get_schema", []any{}, func(json.RawMessage, error) error { return nil })
		_, _ = far.Write(sent)
		far.Close()
		<-c.closed
		c.wait()
	})
}

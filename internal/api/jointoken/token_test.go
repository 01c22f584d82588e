package jointoken

import (
	"reflect"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add(Token{Servers: []string{"https://server.example:9698"}, Pin: "00", Secret: "s"}.Encode(ForHost))
	f.Add(string(ForHost))
	f.Add(string(ForHost) + "e30")
	f.Add(string(ForServer) + "e30")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := Parse(s, ForHost)
		if err != nil {
			return
		}
		again, err := Parse(token.Encode(ForHost), ForHost)
		if err != nil || !reflect.DeepEqual(again, token) {
			t.Errorf("%q parsed as %+v, and written again as %+v, %v", s, token, again, err)
		}
	})
}

// TestKinds: a token of one kind is refused where the other is wanted, with the command that makes
// the right one.
func TestKinds(t *testing.T) {
	t.Parallel()
	token := Token{Servers: []string{"https://192.0.2.1:9698"}, Pin: "00", Secret: "s"}
	for _, test := range []struct {
		text string
		kind Kind
		want string
	}{
		{token.Encode(ForHost), ForServer, "is for hosts; make one on the server with `heddle cluster token`"},
		{token.Encode(ForServer), ForHost, "is for servers; make one on the server with `heddle host token`"},
		{"nonsense", ForServer, "not a join token; make one on the server with `heddle cluster token`"},
		{Token{Servers: []string{"https://192.0.2.1:9698"}, Secret: "s"}.Encode(ForHost), ForHost, "want https with a fingerprint, or http"},
	} {
		if _, err := Parse(test.text, test.kind); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.text, err, test.want)
		}
	}
	if got, err := Parse(token.Encode(ForServer)+"\n", ForServer); err != nil || !reflect.DeepEqual(got, token) {
		t.Errorf("%+v, %v", got, err)
	}
}

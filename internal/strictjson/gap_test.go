package strictjson

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// TestGapOnce: the whitespace before an element is looked at once, not for each of its tokens.
func TestGapOnce(t *testing.T) {
	const head = `{"list":[1,`
	gap := strings.Repeat(" ", 1000)
	in := &input{r: strings.NewReader(head + gap + `{"a":[1,2,3]},` + gap + `{"b":4}]}`), text: make([]byte, 0, 8)}
	s := scan{Limits: Limits{Item: 100}, d: jsontext.NewDecoder(in), in: in}
	begins := map[int]bool{}
	for {
		token, err := s.d.ReadToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.token(token.Kind()); err != nil {
			t.Fatal(err)
		}
		if s.inList() && s.d.StackDepth() > 2 {
			begins[in.item] = true
		}
	}
	first := len(head) + len(gap)
	second := first + len(`{"a":[1,2,3]},`) + len(gap)
	if len(begins) != 2 || !begins[first] || !begins[second] {
		t.Errorf("elements begin at %v; want %d and %d", begins, first, second)
	}
}

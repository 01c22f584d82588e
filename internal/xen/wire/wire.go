// Package wire is how the XenAPI's calls and replies look as XML-RPC and as JSON-RPC 1.0 and 2.0,
// on both sides (docs/xenapi.md). It does no I/O.
//
// Decoders give raw values (string, int64, float64, bool, nil, []any, map[string]any), which
// [Coerce] turns into the model's; encoders take the model's Go values. Clients in daily use test
// some things to the letter, so the XML has no space between elements, and strings, integers too,
// have no type element.
package wire

import "fmt"

// MaxCall is the largest body of a call in bytes.
const MaxCall = 1 << 20

// maxCallValues bounds the values of a call: a value takes far more memory than its text.
const maxCallValues = 20_000

// maxDepth bounds how deep values nest: the XenAPI's own need six levels.
const maxDepth = 32

// SyntaxError is the error of a message that is not XML-RPC or JSON-RPC at all.
type SyntaxError struct {
	Offset int // in bytes from the message's beginning
	Text   string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Text, e.Offset) }

// budget counts the values of a message; most 0 is without limit.
type budget struct{ most, used int }

// spend counts one more value, and reports whether that is within the limit.
func (b *budget) spend() bool {
	b.used++
	return b.most == 0 || b.used <= b.most
}

// checkSize refuses a call that is too long.
func checkSize(body []byte) error {
	if len(body) > MaxCall {
		return &SyntaxError{MaxCall, fmt.Sprintf("the call is longer than %d bytes", MaxCall)}
	}
	return nil
}

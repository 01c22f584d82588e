package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
)

// MaxBody bounds the body of a record, bytes.
const MaxBody = 4 << 10

// struck stands in place of a secret.
const struck = "***"

// secretWords mark the names of members that have secrets, in every API. A name is compared in
// lower case and without what separates its words.
var secretWords = []string{"password", "passwd", "pwd", "passphrase", "secret", "token", "credential", "userdata", "sshkey", "privatekey", "authkey", "certificatekey"}

// Secret reports whether members of this name have secrets, which no record repeats.
func Secret(name string) bool {
	name = plain(name)
	return hasSecretWord(name) || name == "key" || name == "psk"
}

// plain returns a text in lower case and without what separates the words of names.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ':' || r == '.' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(text))
}

func hasSecretWord(text string) bool {
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(text, word) })
}

// isHarmless reports whether a JSON value has no member with a secret, since no part of its text
// might be the name of one. It is false for names that are escaped.
func isHarmless(raw []byte) bool {
	text := plain(string(raw))
	return !strings.ContainsRune(text, '\\') && !hasSecretWord(text) && !strings.Contains(text, `"key"`) && !strings.Contains(text, `"psk"`)
}

var errCut = errors.New("the rest is left out")

// Strike returns a JSON value without white space and with its secrets struck out. It is cut off
// after MaxBody bytes, or where raw is no JSON any more, and nothing of a secret comes before that.
func Strike(raw []byte) (body string, cut bool) {
	if isHarmless(raw) { // most are, and to read each token takes several times as long
		var all bytes.Buffer
		if json.Compact(&all, raw) == nil && all.Len() <= MaxBody {
			return all.String(), false
		}
	}
	out, err := strike(raw, MaxBody)
	if err == io.EOF && len(raw) == 0 {
		return "", false
	}
	return string(out), err != nil
}

// StrikeAll returns a whole JSON value without white space and with its secrets struck out.
func StrikeAll(raw []byte) ([]byte, error) { return strike(raw, math.MaxInt) }

func strike(raw []byte, most int) ([]byte, error) {
	s := striking{in: json.NewDecoder(bytes.NewReader(raw)), most: most}
	s.in.UseNumber()
	err := s.value()
	return s.out.Bytes(), err
}

type striking struct {
	in   *json.Decoder
	out  bytes.Buffer
	most int // bytes
}

// write writes a token, unless that exceeds the limit.
func (s *striking) write(text []byte) error {
	if s.out.Len()+len(text) > s.most {
		return errCut
	}
	s.out.Write(text)
	return nil
}

// value copies the next value.
func (s *striking) value() error {
	token, err := s.in.Token()
	if err != nil {
		return err
	}
	opening, isDelim := token.(json.Delim)
	if !isDelim {
		return s.scalar(token)
	}
	if err := s.write([]byte(opening.String())); err != nil {
		return err
	}
	for first := true; s.in.More(); first = false {
		if !first {
			if err := s.write([]byte{','}); err != nil {
				return err
			}
		}
		if err := s.element(opening == '{'); err != nil {
			return err
		}
	}
	closing, err := s.in.Token()
	if err != nil {
		return err
	}
	return s.write([]byte(closing.(json.Delim).String()))
}

func (s *striking) scalar(token json.Token) error {
	text, err := json.Marshal(token)
	if err != nil {
		return err
	}
	return s.write(text)
}

// element copies the next element of an array, or member of an object.
func (s *striking) element(isMember bool) error {
	if !isMember {
		return s.value()
	}
	name, err := s.in.Token()
	if err != nil {
		return err
	}
	if err := s.scalar(name); err != nil {
		return err
	}
	if err := s.write([]byte{':'}); err != nil {
		return err
	}
	if !Secret(name.(string)) {
		return s.value()
	}
	if err := s.skip(); err != nil {
		return err
	}
	return s.scalar(struck)
}

// skip reads over the next value.
func (s *striking) skip() error {
	for depth := 0; ; {
		token, err := s.in.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner reads the part of XML that XML-RPC is made of: elements, whose attributes it passes over,
// and text. There are no document types, hence no entities but those of XML itself. Bytes that are
// not UTF-8 stay as they are; [Coerce] refuses them, by the name of the parameter.
type scanner struct {
	b     []byte
	pos   int
	depth int // of values

	values budget
}

func (s *scanner) fail(format string, args ...any) error {
	return &SyntaxError{s.pos, fmt.Sprintf(format, args...)}
}

// begin passes over all that may stand before the first element.
func (s *scanner) begin() error {
	s.b = bytes.TrimPrefix(s.b, []byte("\xef\xbb\xbf"))
	if declaration := []byte("<?xml"); bytes.HasPrefix(s.b, declaration) {
		end := bytes.Index(s.b, []byte("?>"))
		if end < 0 {
			return s.fail("the XML declaration does not end")
		}
		if err := s.checkEncoding(string(s.b[:end])); err != nil {
			return err
		}
		s.pos = end + 2
	}
	return s.skip()
}

// checkEncoding refuses declarations of any encoding but UTF-8 and its part ASCII.
func (s *scanner) checkEncoding(declaration string) error {
	_, encoding, ok := strings.Cut(declaration, "encoding")
	if !ok {
		return nil
	}
	encoding = strings.ToLower(strings.Trim(encoding, "= \t\r\n"))
	for _, name := range []string{"utf-8", "utf8", "us-ascii", "ascii"} {
		if len(encoding) > len(name) && encoding[1:1+len(name)] == name {
			return nil
		}
	}
	return s.fail("the encoding %s is not UTF-8", encoding)
}

// end sees to it that nothing follows the last element.
func (s *scanner) end() error {
	if err := s.skip(); err != nil {
		return err
	}
	if s.pos < len(s.b) {
		return s.fail("there is more after the end")
	}
	return nil
}

// skip passes over space, comments and processing instructions.
func (s *scanner) skip() error {
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			s.pos++
		case s.at("<!--"):
			if err := s.past("-->"); err != nil {
				return err
			}
		case s.at("<?"):
			if err := s.past("?>"); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// at reports whether text comes next.
func (s *scanner) at(text string) bool {
	return len(s.b)-s.pos >= len(text) && string(s.b[s.pos:s.pos+len(text)]) == text
}

// past goes behind the next such text.
func (s *scanner) past(text string) error {
	i := bytes.Index(s.b[s.pos:], []byte(text))
	if i < 0 {
		return s.fail("%s is missing", text)
	}
	s.pos += i + len(text)
	return nil
}

// tag reads a start tag, and says whether the element is empty: <name/>.
func (s *scanner) tag() (name string, empty bool, err error) {
	if s.pos >= len(s.b) || s.b[s.pos] != '<' {
		return "", false, s.fail("an element should begin here")
	}
	start := s.pos + 1
	for s.pos = start; s.pos < len(s.b) && isNameByte(s.b[s.pos]); s.pos++ {
	}
	name = elementName(s.b[start:s.pos])
	if name == "" {
		return "", false, s.fail("an element should begin here")
	}
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; c {
		case '>':
			s.pos++
			return name, empty, nil
		case '"', '\'':
			s.pos++
			if err := s.past(string(c)); err != nil {
				return "", false, err
			}
			empty = false
		case '<':
			return "", false, s.fail("the element %s does not end", name)
		default:
			empty = c == '/'
			s.pos++
		}
	}
	return "", false, s.fail("the element %s does not end", name)
}

// elementName is the name as a string, without a copy for those of which a long reply holds many.
func elementName(name []byte) string {
	for _, known := range [...]string{"value", "member", "name", "boolean", "struct", "array", "data", "double", "string"} {
		if string(name) == known {
			return known
		}
	}
	return string(name)
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == ':'
}

// open reads the start tag of an element that must come next.
func (s *scanner) open(want string) (empty bool, err error) {
	if err := s.skip(); err != nil {
		return false, err
	}
	name, empty, err := s.tag()
	if err != nil {
		return false, err
	}
	if name != want {
		return false, s.fail("the element %s comes where %s should", name, want)
	}
	return empty, nil
}

// close reads the end tag of an element that must come next.
func (s *scanner) close(name string) error {
	if err := s.skip(); err != nil {
		return err
	}
	return s.closeHere(name)
}

func (s *scanner) closeHere(name string) error {
	end := s.pos + 2 + len(name)
	if !s.at("</") || end >= len(s.b) || string(s.b[s.pos+2:end]) != name {
		return s.fail("the element %s should end here", name)
	}
	for s.pos = end; s.pos < len(s.b) && s.b[s.pos] <= ' '; s.pos++ {
	}
	if !s.at(">") {
		return s.fail("the element %s should end here", name)
	}
	s.pos++
	return nil
}

// text reads up to the next tag.
func (s *scanner) text() (string, error) {
	start := s.pos
	plain := bytes.IndexByte(s.b[start:], '<')
	if plain < 0 {
		return "", s.fail("the text does not end")
	}
	run := s.b[start : start+plain]
	s.pos += plain
	if !s.at("<!") && !s.at("<?") && bytes.IndexByte(run, '&') < 0 && bytes.IndexByte(run, '\r') < 0 {
		return string(run), nil
	}
	s.pos = start
	return s.mixedText()
}

// mixedText is text with entities, line ends of other systems, comments and literal sections.
func (s *scanner) mixedText() (string, error) {
	var out []byte
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; {
		case s.at("<![CDATA["):
			start := s.pos + len("<![CDATA[")
			if err := s.past("]]>"); err != nil {
				return "", err
			}
			out = append(out, s.b[start:s.pos-len("]]>")]...)
		case s.at("<!--"):
			if err := s.past("-->"); err != nil {
				return "", err
			}
		case s.at("<?"):
			if err := s.past("?>"); err != nil {
				return "", err
			}
		case c == '<':
			return string(out), nil
		case c == '&':
			var err error
			if out, err = s.entity(out); err != nil {
				return "", err
			}
		case c == '\r':
			if s.pos++; !s.at("\n") {
				out = append(out, '\n')
			}
		default:
			out = append(out, c)
			s.pos++
		}
	}
	return "", s.fail("the text does not end")
}

// entity appends what &name; stands for.
func (s *scanner) entity(out []byte) ([]byte, error) {
	end := bytes.IndexByte(s.b[s.pos:min(len(s.b), s.pos+12)], ';')
	if end < 0 {
		return nil, s.fail("an & that begins no entity")
	}
	name := string(s.b[s.pos+1 : s.pos+end])
	switch name {
	case "lt":
		out = append(out, '<')
	case "gt":
		out = append(out, '>')
	case "amp":
		out = append(out, '&')
	case "quot":
		out = append(out, '"')
	case "apos":
		out = append(out, '\'')
	default:
		r, ok := characterReference(name)
		if !ok {
			return nil, s.fail("the entity &%s; is not known", name)
		}
		out = utf8.AppendRune(out, r)
	}
	s.pos += end + 1
	return out, nil
}

// characterReference is the character of #65 or #x41.
func characterReference(name string) (rune, bool) {
	digits, ok := strings.CutPrefix(name, "#")
	if !ok {
		return 0, false
	}
	base := 10
	if hex, ok := strings.CutPrefix(digits, "x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return rune(n), err == nil && n <= utf8.MaxRune && isCharacter(rune(n))
}

// isCharacter reports whether XML allows a character (XML 1.0 §2.2). Values may hold no others.
func isCharacter(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000 && r <= 0x10ffff
}

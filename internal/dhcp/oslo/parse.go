// Package oslo reads the DHCP agent's configuration in the form of Neutron's agents (seed 004,
// "Invocation"): INI files of oslo.config, of which later ones override. It skips options that the
// agent does not have, and refuses wrong values with their file and line.
//
// The syntax is oslo.config's: "[group]", "key = value" or "key: value", comment lines that begin
// with # or ;, indented lines that continue a value, quotes around a whole value, and $name,
// ${name} and ${group.name} for the value of another option, of which $$ and \$ make a plain dollar
// sign. The last value of a repeated key counts.
package oslo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Source is the text of a file.
type Source struct {
	Name string
	Text []byte
}

// Config are the options of all files.
type Config struct {
	values map[place]value
}

// place is an option. Names of groups are in lower case, as they ignore case.
type place struct{ group, option string }

// String writes an option as people do.
func (p place) String() string {
	if p.group == defaultGroup {
		return "[DEFAULT] " + p.option
	}
	return "[" + p.group + "] " + p.option
}

// defaultGroup is the group of options outside any other, and the fallback for those that another
// group lacks.
const defaultGroup = "default"

// value is an option's value in a file.
type value struct {
	text   string // lines joined by \n, before names are replaced
	file   string
	source int // which file it is, counted from the first
	line   int // where it begins
}

// ReadFiles reads files, of which later ones override.
func ReadFiles(paths ...string) (*Config, error) {
	var sources []Source
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		sources = append(sources, Source{path, text})
	}
	return Parse(sources...)
}

// Parse reads texts, of which later ones override. The error names all malformed lines.
func Parse(sources ...Source) (*Config, error) {
	c := &Config{map[place]value{}}
	var errs []error
	for i, s := range sources {
		p := parser{config: c, file: s.Name, source: i}
		p.parse(s.Text)
		errs = append(errs, p.errs...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// parser reads one file.
type parser struct {
	config *Config
	file   string
	source int
	line   int
	group  string // "" before the first
	option string // being read; "" for none
	begin  int    // its line
	lines  []string
	errs   []error
}

func (p *parser) refuse(reason string) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s", p.file, p.line, reason))
}

func (p *parser) parse(text []byte) {
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))) {
		p.line++
		p.take(strings.TrimRight(string(line), " \t\r\n\v\f"))
	}
	p.flush()
}

func (p *parser) take(line string) {
	switch {
	case line == "":
		p.flush()
	case line[0] == ' ' || line[0] == '\t':
		if p.option == "" {
			p.refuse("an indented line goes on with a value, but there is none before it")
			return
		}
		p.lines = append(p.lines, strings.TrimLeft(line, " \t"))
	case line[0] == '#' || line[0] == ';':
		p.flush()
	case line[0] == '[':
		p.flush()
		p.enter(line)
	default:
		p.flush()
		p.assign(line)
	}
}

func (p *parser) enter(line string) {
	if !strings.HasSuffix(line, "]") || len(line) <= 2 {
		p.refuse("want a group's name in brackets, [group]")
		return
	}
	p.group = strings.ToLower(line[1 : len(line)-1])
}

func (p *parser) assign(line string) {
	at := strings.IndexAny(line, ":=")
	if at < 0 {
		p.refuse("want option = value, [group] or a comment that begins with #")
		return
	}
	option, text := strings.TrimSpace(line[:at]), strings.TrimSpace(line[at+1:])
	switch {
	case option == "":
		p.refuse("there is no option before the " + line[at:at+1])
		return
	case p.group == "":
		p.refuse("option " + option + " is in no group: want [DEFAULT] or another before it")
		return
	}
	if n := len(text); n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		text = text[1 : n-1]
	}
	p.option, p.begin, p.lines = option, p.line, []string{text}
}

// flush ends the value being read.
func (p *parser) flush() {
	if p.option == "" {
		return
	}
	p.config.values[place{p.group, p.option}] = value{strings.Join(p.lines, "\n"), p.file, p.source, p.begin}
	p.option = ""
}

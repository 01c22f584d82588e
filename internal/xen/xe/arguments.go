package xe

import (
	"fmt"
	"slices"
	"strings"
)

// pair is an argument key=value.
type pair struct{ key, value string }

// arguments is a command line, taken apart.
type arguments struct {
	command string
	words   []string // bare words after the command: what help is asked about
	params  params
	// connection are the settings of the connection, by key.
	connection map[string]string
	version    bool // -version
	help       bool // -help or --help
}

// params are the arguments of a command, in order.
type params []pair

// get is the value given for a key, and whether one was.
func (p params) get(key string) (string, bool) {
	for _, a := range p {
		if a.key == key {
			return a.value, true
		}
	}
	return "", false
}

// or is the value given for a key, or another.
func (p params) or(key, other string) string {
	if v, ok := p.get(key); ok {
		return v
	}
	return other
}

// on reports whether a switch is set.
func (p params) on(key string) bool { return isTrue(p.or(key, "")) }

// isTrue reads a truth value as people write it; all but those are false.
func isTrue(text string) bool {
	switch strings.ToLower(text) {
	case "true", "t", "yes", "y", "1", "on":
		return true
	}
	return false
}

// without leaves out some keys.
func (p params) without(keys ...string) params {
	var rest params
	for _, a := range p {
		if !slices.Contains(keys, a.key) {
			rest = append(rest, a)
		}
	}
	return rest
}

// connectionSwitches take the next word, and mean a setting of the connection.
var connectionSwitches = map[string]string{"-s": "server", "-h": "server", "-p": "port", "-u": "username", "-pw": "password", "-pwf": "passwordfile"}

// connectionKeys are the settings of the connection, as keys.
var connectionKeys = []string{"server", "port", "username", "password", "passwordfile", "ca", "fingerprint", "nossl", "debug", "debug-on-fail"}

// connectionFlags are those of them that are switches too.
var connectionFlags = []string{"nossl", "debug", "debug-on-fail"}

// parse reads a command line. The first word that is no switch of the connection is the command.
func parse(words []string) (*arguments, error) {
	a := &arguments{connection: map[string]string{}}
	for i := 0; i < len(words); i++ {
		word := words[i]
		if key, ok := connectionSwitches[word]; ok {
			if i++; i == len(words) {
				return nil, usageError("Syntax error: %s needs a value", word)
			}
			a.connection[key] = words[i]
			continue
		}
		if err := a.word(word); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// word reads a word that stands alone.
func (a *arguments) word(word string) error {
	switch word {
	case "-version", "--version":
		a.version = true
		return nil
	case "-help", "--help":
		a.help = true
		return nil
	}
	if name, ok := strings.CutPrefix(word, "--"); ok && name != "" && !strings.Contains(name, "=") {
		a.param(name, "true")
		return nil
	}
	key, value, hasValue := strings.Cut(word, "=")
	switch {
	case strings.HasPrefix(word, "-"):
		return usageError("Syntax error: unknown switch %s", word)
	case hasValue && slices.Contains(connectionKeys, key):
		a.connection[key] = value
	case a.command == "" && hasValue:
		return usageError("Syntax error: the command comes first, before %s", word)
	case a.command == "":
		a.command = word
	case hasValue && key == "":
		return usageError("Syntax error: %s has no key before the =", word)
	case hasValue:
		a.param(key, value)
	case a.command == "help":
		a.words = append(a.words, word)
	default:
		return usageError("Syntax error: %s is neither key=value nor a switch", word)
	}
	return nil
}

func (a *arguments) param(key, value string) {
	if slices.Contains(connectionFlags, key) {
		a.connection[key] = value
		return
	}
	a.params = append(a.params, pair{key, value})
}

// extraSettings returns the settings of the connection in XE_EXTRA_ARGS, separated by commas.
func extraSettings(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	a, err := parse(splitEscaped(text))
	if err != nil {
		return nil, fmt.Errorf("XE_EXTRA_ARGS: %w", err)
	}
	if a.command != "" || len(a.params) > 0 {
		return nil, usageError("Syntax error: XE_EXTRA_ARGS holds more than settings of the connection (%s)", strings.Join(connectionKeys, ", "))
	}
	return a.connection, nil
}

// splitEscaped splits at commas that no backslash precedes.
func splitEscaped(text string) []string {
	var words []string
	var word strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && (text[i+1] == ',' || text[i+1] == '\\'):
			i++
			word.WriteByte(text[i])
		case text[i] == ',':
			words = append(words, word.String())
			word.Reset()
		default:
			word.WriteByte(text[i])
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}

package cli

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/telemetry"
)

// leastSecret is the length of the shortest secret that is struck out: shorter ones are parts of
// other words.
const leastSecret = 4

// strikeOut replaces secrets in texts, and addresses and names if they are to be anonymous.
type strikeOut struct {
	secrets *strings.Replacer
	aliases map[string]string // nil: nothing is to be anonymous
	counts  map[string]int
	names   []string
}

// newStrikeOut returns one for these secrets, as they are and as JSON and the log quote them.
func newStrikeOut(secrets []string) *strikeOut {
	for _, s := range slices.Clone(secrets) {
		quoted := strconv.Quote(s)
		secrets = append(secrets, quoted[1:len(quoted)-1])
	}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // a secret may be part of another
	var pairs []string
	for _, s := range slices.Compact(secrets) {
		if len(s) >= leastSecret {
			pairs = append(pairs, s, telemetry.StruckOut)
		}
	}
	return &strikeOut{secrets: strings.NewReplacer(pairs...)}
}

// anonymise has addresses replaced from now on, and these names.
func (s *strikeOut) anonymise(names ...string) {
	s.aliases, s.counts, s.names = map[string]string{}, map[string]int{}, names
}

// Forms of secrets, wherever they come from, and of what identifies a host or user.
var (
	// A machine may be named heddle-server-1.example.org: a server's token goes on with JSON.
	tokens    = regexp.MustCompile(`heddle-join-[\w.-]+|heddle-server-\d+\.eyJ[\w-]+|gAAAA[\w=-]{20,}`)
	blocks    = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	mac       = regexp.MustCompile(`\b[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}\b`)
	ipv4      = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b`)
	ipv6      = regexp.MustCompile(`\b[0-9a-fA-F]{1,4}:[0-9a-fA-F:]*:[0-9a-fA-F]{0,4}\b`)
	keyMember = regexp.MustCompile(`"key": *"(/[^"]+)"`)
	// anyID is a part of a key that names nothing: a UUID, a hash or a number.
	anyID      = regexp.MustCompile(`^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,}|\d+)$`)
	nameMember = regexp.MustCompile(`"(?:name|host)": *"([^"]+)"|\bnetns ([^\s"]+)`)
)

// apply returns the text without secrets.
func (s *strikeOut) apply(text []byte) []byte {
	clean := telemetry.WithoutURLSecrets(s.secrets.Replace(string(text)))
	clean = tokens.ReplaceAllString(blocks.ReplaceAllString(clean, telemetry.StruckOut), telemetry.StruckOut)
	if s.aliases == nil {
		return []byte(clean)
	}
	clean = keyMember.ReplaceAllStringFunc(clean, s.aliasKey)
	for _, m := range nameMember.FindAllStringSubmatch(clean, -1) {
		if name := m[1] + m[2]; !slices.Contains(s.names, name) { // of one form
			s.names = append(s.names, name)
		}
	}
	slices.SortFunc(s.names, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, name := range s.names {
		clean = s.replaceName(clean, name)
	}
	for kind, form := range map[string]*regexp.Regexp{"mac": mac, "address": ipv4} {
		clean = form.ReplaceAllStringFunc(clean, func(found string) string { return s.alias(kind, found) })
	}
	return []byte(ipv6.ReplaceAllStringFunc(clean, func(found string) string { return s.alias("address", found) }))
}

// replaceName replaces a name by its alias; a short one, such as s1, where it is a word of its own.
func (s *strikeOut) replaceName(text, name string) string {
	alias := s.alias("name", name)
	if len(name) >= leastSecret {
		return strings.ReplaceAll(text, name, alias)
	}
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).ReplaceAllString(text, alias)
}

// tableParts is the number of the first parts of a key of the store that are the same in any store,
// such as /heddle/neutron/ports, with what precedes the first slash.
const tableParts = 4

// aliasKey replaces the parts of a member "key" that may be names. Some are words of Heddle's own,
// which are names only there.
func (s *strikeOut) aliasKey(member string) string {
	parts := strings.Split(keyMember.FindStringSubmatch(member)[1], "/")
	for i, part := range parts {
		if i >= tableParts && part != "" && !anyID.MatchString(part) {
			parts[i] = s.alias("name", part)
		}
	}
	return `"key": "` + strings.Join(parts, "/") + `"`
}

// alias returns what stands for a name or address in the whole bundle.
func (s *strikeOut) alias(kind, of string) string {
	if _, known := s.aliases[of]; !known {
		s.counts[kind]++
		s.aliases[of] = fmt.Sprintf("%s-%d", kind, s.counts[kind])
	}
	return s.aliases[of]
}

// unitSetting matches the name of a variable, flag or credential in a unit, up to its value.
var unitSetting = regexp.MustCompile(`\b[A-Z][A-Z0-9_]*=|--?[a-z][a-z0-9-]*[= ]|^SetCredential\w*=`)

// withoutUnitSecrets returns units, as systemctl prints them, without the rest of each line that
// has a secret: where it ends is a matter of systemd's quotes.
func withoutUnitSecrets(units []byte) []byte {
	whole := strings.ReplaceAll(string(units), "\\\n", "")
	var clean strings.Builder
	for line := range strings.Lines(whole) {
		for _, at := range unitSetting.FindAllStringIndex(line, -1) {
			if secretInUnit(line[at[0]:at[1]]) {
				line = line[:at[1]] + telemetry.StruckOut + "\n"
				break
			}
		}
		clean.WriteString(line)
	}
	return []byte(clean.String())
}

// secretInUnit reports whether the value of a unitSetting is a secret.
func secretInUnit(setting string) bool {
	name := strings.ReplaceAll(strings.ToLower(strings.Trim(setting, "-= ")), "_", "-")
	return strings.HasPrefix(name, "setcredential") || strings.HasSuffix(name, "-headers") || telemetry.Secret(strings.TrimPrefix(name, "heddle-"))
}

// passwordLine is a line of a file of credentials, such as clouds.yaml or an openrc.
var passwordLine = regexp.MustCompile(`(?i)(?:password|secret|token)["']?\s*[:=]\s*["']?([^"'\s]+)`)

// secretsIn returns the secrets in the files of directories: passwords, and lines of keys.
func secretsIn(dirs ...string) (secrets []string) {
	for _, dir := range dirs {
		// What cannot be read is not collected either.
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !isSecret(d.Name()) {
				return nil
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			text := string(raw)
			if strings.HasSuffix(d.Name(), ".key") || strings.Contains(d.Name(), "password") {
				for line := range strings.Lines(text) {
					if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
						secrets = append(secrets, line)
					}
				}
				return nil
			}
			secrets = append(secrets, SecretsOfCredentials(text)...)
			return nil
		})
	}
	return secrets
}

// SecretsOfCredentials returns the secrets in the text of a file such as clouds.yaml or an openrc.
func SecretsOfCredentials(text string) (secrets []string) {
	for _, m := range passwordLine.FindAllStringSubmatch(text, -1) {
		secrets = append(secrets, m[1], strings.TrimRight(m[1], ",}")) // of a map on one line
	}
	return secrets
}

package nft

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"heddle/internal/policy/calc"
)

// longestName is how many bytes a name of a chain or a set may have: fewer than the kernel takes, more than a person
// reads.
const longestName = 100

// name makes a name out of a kind, an identifier that may hold anything, and what follows it. Identifiers that nft could
// not read back are cleaned, and told apart by a hash under a kind that no clean one is under.
func name(kind, id, suffix string) string {
	if len(id) <= longestName && clean(id) == id {
		return kind + "/" + id + suffix
	}
	hash := sha256.Sum256([]byte(id))
	short := clean(id)
	if len(short) > longestName/2 {
		short = short[:longestName/2]
	}
	return kind + "-hashed/" + short + "." + base64.RawURLEncoding.EncodeToString(hash[:15]) + suffix
}

// clean replaces what nft does not take in names by underscores.
func clean(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("_.-/", r):
			return r
		}
		return '_'
	}, id)
}

// The stable identity of a selector is a SHA-224 as base64, of which this much is enough to tell selectors apart. The
// kernel finds sets by comparing names, so short ones are worth it.
const (
	selectorIdentity      = 38
	selectorIdentityShort = 20
)

// setName is that of the set of a version's addresses.
func setName(id calc.SetID, version int) string {
	kind, rest, ok := strings.Cut(string(id), ":")
	switch {
	case ok && kind == "s" && len(rest) == selectorIdentity && clean(rest) == rest:
		return fmt.Sprintf("s%d/%s", version, rest[:selectorIdentityShort])
	case ok && kind == "t":
		return name(fmt.Sprintf("tag%d", version), rest, "")
	}
	return name(fmt.Sprintf("set%d", version), string(id), "")
}

// stage is when, on a packet's way, a list of rules judges it. An allowed packet is treated differently by each.
type stage uint8

const (
	normal stage = iota
	untracked
	preDNAT
)

func (s stage) String() string { return [...]string{"policy", "untracked", "pre-dnat"}[s] }

func (d listKey) directionSuffix() string {
	if d.list.Direction == calc.Outbound {
		return "/out"
	}
	return "/in"
}

// listKey names the chain of a list of rules at a stage.
type listKey struct {
	list  calc.ListID
	stage stage
}

// chain is its name.
func (k listKey) chain() string {
	if k.list.Tier == "" {
		return name("profile", k.list.Name, k.directionSuffix())
	}
	return name(k.stage.String(), k.list.Tier+"/"+k.list.Name, k.directionSuffix())
}

// interfaceChain is the name of a chain that is one interface's own.
func interfaceChain(kind, device string) string { return name(kind, device, "") }

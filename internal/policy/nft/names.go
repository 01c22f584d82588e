package nft

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"heddle/internal/policy/calc"
)

// longestName bounds identifiers in names, below the kernel's limit.
const longestName = 100

// name returns a name from a kind, any identifier, and a suffix. Identifiers that nft could not
// read back are cleaned and distinguished by a hash, under a kind of their own.
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

// clean replaces what nft does not accept in names by underscores.
func clean(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("_.-/", r):
			return r
		}
		return '_'
	}, id)
}

// A selector's identity is a SHA-224 as base64, of which a part suffices. The kernel compares names
// to find sets, so short ones are faster.
const (
	selectorIdentity      = 38
	selectorIdentityShort = 20
)

// setName returns the name of the set of a version's addresses.
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

// stage is the point on a packet's way where a list is evaluated.
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

func (k listKey) chain() string {
	if k.list.Tier == "" {
		return name("profile", k.list.Name, k.directionSuffix())
	}
	return name(k.stage.String(), k.list.Tier+"/"+k.list.Name, k.directionSuffix())
}

// counterOf returns the name of the counter of a list's rule.
func (k listKey) counterOf(index int) string { return k.chain() + "/" + strconv.Itoa(index) }

// interfaceChain returns the name of a chain of one interface.
func interfaceChain(kind, device string) string { return name(kind, device, "") }

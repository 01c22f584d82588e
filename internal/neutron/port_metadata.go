package neutron

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"regexp"
	"slices"
	"strings"

	"heddle/internal/topology"
)

const (
	// MaxUserData bounds the user data of a machine, in bytes; cloud-init reads it compressed too.
	MaxUserData = 64 << 10
	maxSSHKeys  = 20
	maxSSHKey   = 8 << 10 // bytes: ample for an RSA key of 16,384 bits
	maxHostname = 253
	maxHash     = 512
)

var (
	hostnameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)
	// hashForm matches hashes of crypt(3) with a method: $6$salt$hash.
	hashForm = regexp.MustCompile(`^\$[0-9a-z]{1,3}\$[!-9;-~]+$`)
)

// ParsePortMetadata reads what a request sets of a machine's metadata: hostname, ssh_keys,
// password_hash and user_data, in base64. What it does not name stays as it is, and null removes.
func ParsePortMetadata(body map[string]any) (change func(*topology.InstanceSecrets), err error) {
	var changes []func(*topology.InstanceSecrets)
	for _, name := range slices.Sorted(maps.Keys(body)) {
		set, err := metadataField(name, body[name])
		if why, ok := err.(reason); ok {
			return nil, badRequest("Invalid input for %s. Reason: %s.", name, why)
		}
		if err != nil {
			return nil, err
		}
		changes = append(changes, set)
	}
	return func(m *topology.InstanceSecrets) {
		for _, set := range changes {
			set(m)
		}
	}, nil
}

// metadataField reads one member of a machine's metadata. The error is a reason if the value is not
// good.
func metadataField(name string, v any) (set func(*topology.InstanceSecrets), err error) {
	switch name {
	case "hostname":
		s, err := metadataText(v, maxHostname, hostnameForm, "want the name of a host, such as web-1 or web-1.example.org")
		return func(m *topology.InstanceSecrets) { m.Hostname = s }, err
	case "password_hash":
		s, err := metadataText(v, maxHash, hashForm, "want a hash, as openssl passwd -6 makes it, not a password")
		return func(m *topology.InstanceSecrets) { m.PasswordHash = s }, err
	case "ssh_keys":
		keys, err := sshKeys(v)
		return func(m *topology.InstanceSecrets) { m.SSHKeys = keys }, err
	case "user_data":
		data, err := userData(v)
		return func(m *topology.InstanceSecrets) { m.UserData = data }, err
	}
	return nil, badRequest("Unrecognized attribute(s) '%s'", name)
}

// metadataText reads a text of a form; null is "".
func metadataText(v any, max int, form *regexp.Regexp, want string) (string, error) {
	if v == nil {
		return "", nil
	}
	s, ok := v.(string)
	if !ok || len(s) > max || !form.MatchString(s) {
		return "", reasonf("%s, of at most %d characters", want, max)
	}
	return s, nil
}

// userData reads bytes in base64; null is none.
func userData(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	s, ok := v.(string)
	if !ok {
		return nil, reasonf("want a text in base64")
	}
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, reasonf("want a text in base64")
	}
	if len(data) > MaxUserData {
		return nil, reasonf("it has %d bytes and may have %d: compress it by gzip, or have the machine fetch the rest", len(data), MaxUserData)
	}
	return data, nil
}

// sshKeys reads public keys, each a line as in a .pub file; null is none.
func sshKeys(v any) ([]string, error) {
	list, ok := v.([]any)
	if v != nil && !ok {
		return nil, reasonf("want a list of public keys")
	}
	if len(list) > maxSSHKeys {
		return nil, reasonf("it has %d keys and may have %d", len(list), maxSSHKeys)
	}
	var keys []string
	for i, x := range list {
		key, _ := x.(string)
		key = strings.TrimSpace(key)
		if !isSSHKey(key) {
			return nil, reasonf("key %d is no public key of SSH: want a line of a .pub file, such as ssh-ed25519 AAAA… ann@example.org", i+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// isSSHKey reports whether a line is a public key: its type, and data that name the same type (RFC
// 4253 §6.6).
func isSSHKey(line string) bool {
	fields := strings.Fields(line)
	if len(line) > maxSSHKey || strings.ContainsAny(line, "\r\n\x00") || len(fields) < 2 {
		return false
	}
	data, err := base64.StdEncoding.DecodeString(fields[1])
	const lengthSize = 4
	if err != nil || len(data) < lengthSize {
		return false
	}
	rest := data[lengthSize:]
	n := binary.BigEndian.Uint32(data)
	return uint64(n) < uint64(len(rest)) && bytes.Equal(rest[:n], []byte(fields[0]))
}

// PortMetadataView is a machine's metadata as its owner sees it: not the password's hash.
type PortMetadataView struct {
	Hostname    string   `json:"hostname,omitempty"`
	SSHKeys     []string `json:"ssh_keys"`
	HasPassword bool     `json:"has_password"`
	UserData    []byte   `json:"user_data,omitempty"` // in base64
}

// ViewPortMetadata returns the view.
func ViewPortMetadata(m *topology.InstanceSecrets) *PortMetadataView {
	v := &PortMetadataView{Hostname: m.Hostname, SSHKeys: m.SSHKeys, HasPassword: m.PasswordHash != "", UserData: m.UserData}
	if v.SSHKeys == nil {
		v.SSHKeys = []string{}
	}
	return v
}

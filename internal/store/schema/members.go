package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"heddle/internal/store/records"
)

// Server reports that a server is alive.
type Server struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"` // of its machine
	Role      string    `json:"role"` // the command: serve, xapi
	Version   string    `json:"version"`
	Reads     int       `json:"reads"`  // newest format that it reads
	Writes    int       `json:"writes"` // newest format that it can write
	StartedAt time.Time `json:"started_at"`
	// MissingKey is set while the server's file with the key of machines' metadata is missing, or
	// it works without the key.
	MissingKey *MissingKey `json:"missing_key,omitempty"`
	// FullDisk is set while a cluster's server accepts no writes because its disk is full.
	FullDisk *FullDisk `json:"full_disk,omitempty"`
	// Journalled is the revision of the last record of a request that the server has journalled.
	Journalled int64 `json:"journalled,omitempty"`
	Reach
}

// FullDisk describes the full disk of a server's data directory.
type FullDisk struct {
	Dir       string `json:"dir"`
	FreeMiB   int64  `json:"free_mib"`
	NeededMiB int64  `json:"needed_mib"` // to accept writes again
}

// MissingKey describes a missing file with a server's key.
type MissingKey struct {
	File   string `json:"file"`
	Loaded bool   `json:"loaded"` // the server has read the key from it at its start
	// LostStore is the directory of the server's store if that is missing, too: it was deleted
	// below the server.
	LostStore string `json:"lost_store,omitempty"`
}

// Reach is a server's own description of how hosts reach it and the store. It is empty for one by
// which no host can join. Hosts follow it, and so find servers that were added or moved.
type Reach struct {
	URLs      []string `json:"urls,omitempty"`       // base URLs of the operators' API
	Pin       string   `json:"pin,omitempty"`        // fingerprint of the last certificate that the API presents; "" without TLS
	StoreURLs []string `json:"store_urls,omitempty"` // of etcd
	StoreCA   string   `json:"store_ca,omitempty"`   // authorities of the store's servers, PEM
	// HostSigner is the key identifier (hex) of the authority that signs hosts' certificates. A
	// host with a certificate of another one renews it.
	HostSigner string `json:"host_signer,omitempty"`
	Trust      *Trust `json:"trust,omitempty"` // nil without an authority, and from servers of earlier versions
}

// Trust is a server's part in a rotation of the authority. Authorities are fingerprints of their
// certificates.
type Trust struct {
	Authorities []string  `json:"authorities"`     // that it trusts
	Peers       []string  `json:"peers,omitempty"` // that its store trusts as a member of a cluster, as of its start
	SignedBy    string    `json:"signed_by"`       // has signed its certificate
	Until       time.Time `json:"until"`           // end of its certificate
}

// Servers has the servers that are alive, each under a lease of its own.
var Servers = records.NewDerivedTable("server", ServersPrefix, func(s *Server) string { return s.ID })

// Member is a live program that works with the store's records: a server, or the agent of a host.
type Member struct {
	Role    string // serve, xapi or agent
	Name    string
	ID      string
	Version string
	Reads   int // newest format that it reads
	Writes  int // newest format that it can write
}

func (m Member) String() string {
	return fmt.Sprintf("%s on %s (%s) reads format %d and writes %d", m.Role, m.Name, m.Version, m.Reads, m.Writes)
}

// firstFormat is the format of programs that do not say which they know.
const firstFormat = 1

// Members returns the live members, servers first, by role, name and id. Agents without the overlay
// and a pool are not among them: what they read is Calico's data model, which has no such formats.
// A transaction's commit fails if one that it has seen reports something else.
func Members(r records.Reader) []Member {
	var all []Member
	for s := range Servers.All(r) {
		if s, err := Servers.Get(r, s.ID); err == nil {
			all = append(all, Member{s.Role, s.Name, s.ID, s.Version, s.Reads, s.Writes})
		}
	}
	for h := range Hosts.All(r) {
		if s, err := HostStates.Get(r, h.ID); err == nil {
			all = append(all, agentMember(h.Name, h.ID, s.Version, s.Reads, s.Writes))
		} else if s, err := PoolHosts.Get(r, XenRef(h.ID)); err == nil {
			all = append(all, agentMember(h.Name, h.ID, s.Version, s.Reads, s.Writes))
		}
	}
	slices.SortStableFunc(all, func(a, b Member) int {
		agents := func(m Member) int { return strings.Count(m.Role, agentRole) }
		return cmp.Or(agents(a)-agents(b), strings.Compare(a.Role, b.Role), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return all
}

const agentRole = "agent"

func agentMember(name, id, version string, reads, writes int) Member {
	return Member{agentRole, name, id, version, max(reads, firstFormat), max(writes, firstFormat)}
}

// NewestFormat returns the newest format that any server writes, at least that in use. What hosts
// say beyond that counts once a server says it, too: a host can say anything.
func NewestFormat(found StoreFormat, members []Member) int {
	newest := found.Written
	for _, m := range members {
		if m.Role != agentRole {
			newest = max(newest, m.Writes)
		}
	}
	return newest
}

// BehindError reports that the store's format cannot be raised, as members do not know the newest.
type BehindError struct {
	Newest  int
	Members []Member
}

func (e *BehindError) Error() string {
	names := make([]string, len(e.Members))
	for i, m := range e.Members {
		names[i] = m.String()
	}
	return fmt.Sprintf("format %d cannot be used yet: %s; upgrade or stop them first", e.Newest, strings.Join(names, ", "))
}

// CommitFormat has the store written in the newest format that all live members write, and returns
// the format now in use. The error is a [BehindError] if some members write and read a newer one
// than others.
//
// A member that starts meanwhile, or was away, finds the new format when it reads it after its
// start, and ends if it cannot work with it.
func CommitFormat(ctx context.Context, db *records.DB, known Formats) (now StoreFormat, err error) {
	if _, err := db.View(ctx); err != nil { // so that all who have reported before are seen
		return now, err
	}
	_, err = db.Update(ctx, func(tx *records.Tx) error {
		found, mod, err := ReadFormat(ctx, db.Store())
		if err != nil {
			return err
		}
		if now, err = nextFormat(found, Members(tx), known); err != nil || now == found {
			return err
		}
		value, err := json.Marshal(now)
		if err != nil {
			return err
		}
		tx.ExpectKey(formatKey, mod)
		tx.PutKey(formatKey, value)
		return nil
	})
	return now, err
}

// nextFormat returns the format to which the store may be raised: found if all members write no
// later one.
func nextFormat(found StoreFormat, members []Member, known Formats) (StoreFormat, error) {
	next, newest := known.Newest(), NewestFormat(found, members)
	for _, m := range members {
		next = min(next, m.Writes, m.Reads)
	}
	if next > found.Written {
		return known.at(next), nil
	}
	behind := BehindError{Newest: newest}
	for _, m := range members {
		if min(m.Reads, m.Writes) < newest {
			behind.Members = append(behind.Members, m)
		}
	}
	if newest > found.Written && len(behind.Members) > 0 {
		return found, &behind
	}
	return found, nil
}

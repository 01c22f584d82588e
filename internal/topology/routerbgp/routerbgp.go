// Package routerbgp holds the messages between a host's agent and the process that speaks BGP for a
// router (services §2.5, §6.3). They are lines of JSON on a socket:
//
//	agent ──Plan──▶ speaker     each replaces the one before
//	agent ◀─Report─ speaker     changes, and all there is to each agent that connects
//
// Both ends are one version of one program, or the agent ends the speaker: unknown fields are
// refused.
package routerbgp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Version is that of the messages. A speaker refuses the plans of another.
const Version = 3

// ReportEvery is the longest pause between the reports of a speaker whose agent reads them. A
// report without changes says that the speaker works.
const ReportEvery = 2 * time.Second

const (
	// MaxLine bounds a message, bytes.
	MaxLine = 16 << 20
	// MaxRoutes bounds the routes of one Report.
	MaxRoutes = 4096
	// MaxPrefixes is the number of destinations that are used of those that a neighbour announces;
	// the others are counted (services §6.3/3).
	MaxPrefixes = 10_000
)

// Defaults of a neighbour's timers (midonet-topology §2.6), and the time for which routes of a
// session that is down stay in use, of neighbours that support that (RFC 4724).
const (
	KeepAlive    = 60 * time.Second
	HoldTime     = 180 * time.Second
	ConnectRetry = 120 * time.Second
	RestartTime  = 120 * time.Second
)

// Plan is the configuration of a router's speaker.
type Plan struct {
	Version    int            `json:"version"`
	ASNumber   uint32         `json:"as"`
	Neighbours []Neighbour    `json:"neighbours"` // by address
	Networks   []netip.Prefix `json:"networks"`   // that it announces, and no other
	Links      []Link         `json:"links"`
	Own        []netip.Addr   `json:"own,omitempty"` // the router's addresses, which are no next hops
	// Restarting: routes of an earlier speaker of this router are still in use.
	Restarting bool `json:"restarting,omitempty"`
	// LingerSeconds is the time after which the speaker ends if no agent is connected, or the one
	// that is has sent nothing, not even an empty line, by which it shows that it works.
	LingerSeconds int `json:"lingerSeconds"`
}

// Neighbour is a BGP peer. Its session begins and ends at Local, an address of the router.
type Neighbour struct {
	Address  netip.Addr `json:"address"`
	Local    netip.Addr `json:"local"`
	ASNumber uint32     `json:"as"`
	Password string     `json:"password,omitempty"` // of TCP MD5 (RFC 2385); "" = none
	// Seconds; 0 = the default.
	KeepAlive    int `json:"keepAlive,omitempty"`
	HoldTime     int `json:"holdTime,omitempty"`
	ConnectRetry int `json:"connectRetry,omitempty"`
}

// Link is a subnet to which the router is connected.
type Link struct {
	Subnet netip.Prefix `json:"subnet"`
	// Tenant: it is the router's own to announce, and no route equal to it or inside it is learned.
	Tenant bool `json:"tenant,omitempty"`
}

// maxPassword is the longest key of TCP MD5 that Linux takes, bytes.
const maxPassword = 80

// Check returns what makes the plan unusable.
func (p *Plan) Check() error {
	if p.Version != Version {
		return fmt.Errorf("plan of version %d: this speaker takes version %d", p.Version, Version)
	}
	if p.ASNumber == 0 {
		return errors.New("plan without an AS number")
	}
	if p.LingerSeconds < 1 || p.LingerSeconds > 3600 {
		return fmt.Errorf("lingerSeconds %d: want 1 to 3600", p.LingerSeconds)
	}
	seen := map[netip.Addr]bool{}
	for i := range p.Neighbours {
		n := &p.Neighbours[i]
		if err := n.Check(); err != nil {
			return fmt.Errorf("neighbour %s: %w", n.Address, err)
		}
		if seen[n.Address] {
			return fmt.Errorf("neighbour %s: there is another with this address", n.Address)
		}
		seen[n.Address] = true
	}
	for _, n := range p.Networks {
		if !n.IsValid() || !n.Addr().Is4() || n != n.Masked() {
			return fmt.Errorf("network %s: want an IPv4 prefix without host bits", n)
		}
	}
	for _, l := range p.Links {
		if !l.Subnet.IsValid() || !l.Subnet.Addr().Is4() || l.Subnet != l.Subnet.Masked() {
			return fmt.Errorf("link %s: want an IPv4 prefix without host bits", l.Subnet)
		}
	}
	for _, a := range p.Own {
		if !a.Is4() {
			return fmt.Errorf("address %s of the router: want an IPv4 address", a)
		}
	}
	return nil
}

// Check returns what makes a neighbour unusable.
func (n *Neighbour) Check() error {
	switch {
	case !n.Address.Is4() || !n.Local.Is4():
		return fmt.Errorf("want IPv4 addresses, not %s at %s", n.Address, n.Local)
	case n.Address == n.Local:
		return fmt.Errorf("%s is the router's own address", n.Local)
	case n.ASNumber == 0:
		return errors.New("no AS number")
	case len(n.Password) > maxPassword:
		return fmt.Errorf("a password of %d bytes: TCP MD5 takes %d", len(n.Password), maxPassword)
	case n.HoldTime != 0 && (n.HoldTime < 3 || n.HoldTime > 65535):
		return fmt.Errorf("holdTime %d: want 3 to 65535 s", n.HoldTime)
	case n.KeepAlive < 0 || n.KeepAlive > 65535 || n.ConnectRetry < 0 || n.ConnectRetry > 65535:
		return fmt.Errorf("keepAlive %d, connectRetry %d: want up to 65535 s", n.KeepAlive, n.ConnectRetry)
	}
	return nil
}

// Report is a list of changes of routes and sessions.
type Report struct {
	// Full begins a report of everything, in as many parts as it needs; Complete ends it.
	Full     bool    `json:"full,omitempty"`
	Complete bool    `json:"complete,omitempty"`
	Routes   []Route `json:"routes,omitempty"` // that have changed
	Peers    []Peer  `json:"peers,omitempty"`  // all of them, if one has changed
	// Settled: every neighbour has announced all its routes since the speaker has started, or the
	// restart time is over. What is not learned by then is not there.
	Settled bool `json:"settled,omitempty"`
	// RouterID is the speaker's BGP identifier, in a report with Peers.
	RouterID netip.Addr `json:"routerId,omitzero"`
	// Problem says why the last plan is not carried out, in a report with Peers.
	Problem string `json:"problem,omitempty"`
}

// Route is a learned destination. Without a gateway it is learned no longer; with several, all are
// equally good.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	Gateways []netip.Addr `json:"gateways,omitempty"` // in order
}

// Peer is the state of a neighbour's session.
type Peer struct {
	Address    netip.Addr `json:"address"`
	ASNumber   uint32     `json:"as"`
	State      string     `json:"state"`    // StateIdle, …
	Since      time.Time  `json:"since"`    // of the state up or down
	Received   int        `json:"received"` // destinations; those kept in use while it is down
	Refused    Refused    `json:"refused"`
	Advertised int        `json:"advertised"`
	LastError  string     `json:"lastError,omitempty"` // why the session is not up
}

// Refused counts the destinations of a neighbour that are not used.
type Refused struct {
	NextHop int `json:"nextHop"` // on no connected subnet, or the router itself
	Tenant  int `json:"tenant"`  // equal to or inside a subnet that is the router's own
	Invalid int `json:"invalid"` // no destination of unicast
	Limit   int `json:"limit"`   // beyond MaxPrefixes
}

// Sum returns the number of all.
func (r Refused) Sum() int { return r.NextHop + r.Tenant + r.Invalid + r.Limit }

// States of a session (RFC 4271 §8.2.2).
const (
	StateIdle        = "IDLE"
	StateConnect     = "CONNECT"
	StateActive      = "ACTIVE"
	StateOpenSent    = "OPENSENT"
	StateOpenConfirm = "OPENCONFIRM"
	StateEstablished = "ESTABLISHED"
)

// ParsePlan reads a plan, and checks it.
func ParsePlan(line []byte) (*Plan, error) {
	var p Plan
	if err := parse(line, &p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &p, nil
}

// ParseReport reads a report.
func ParseReport(line []byte) (*Report, error) {
	var r Report
	if err := parse(line, &r); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if len(r.Routes) > MaxRoutes {
		return nil, fmt.Errorf("report of %d routes: want %d at most", len(r.Routes), MaxRoutes)
	}
	for _, route := range r.Routes {
		if !route.Dst.IsValid() || !route.Dst.Addr().Is4() || route.Dst != route.Dst.Masked() {
			return nil, fmt.Errorf("report: destination %s: want an IPv4 prefix without host bits", route.Dst)
		}
		for _, g := range route.Gateways {
			if !g.Is4() {
				return nil, fmt.Errorf("report: gateway %s of %s: want an IPv4 address", g, route.Dst)
			}
		}
	}
	return &r, nil
}

func parse(line []byte, into any) error {
	if len(line) > MaxLine {
		return fmt.Errorf("%d bytes: want %d at most", len(line), MaxLine)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

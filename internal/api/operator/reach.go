package operator

import (
	"net/netip"
	"time"

	"heddle/internal/topology/flow"
)

// ReachRequest is the question who can reach a machine, or what a machine can reach (explain §6).
type ReachRequest struct {
	From     string `json:"from,omitempty"`     // a port's id or name, or an address; "" = all
	To       string `json:"to,omitempty"`       // likewise; at least one of both, or By
	By       string `json:"by,omitempty"`       // all pairs of machines, counted by group, network or project
	Version  int    `json:"version,omitempty"`  // of IP with By, 4 or 6; 0 = 4
	Protocol string `json:"protocol,omitempty"` // name or number; "" = tcp with a port, else all services
	Port     uint16 `json:"port,omitempty"`     // the only destination port to ask about
	// At asks about the past: a time in RFC 3339, or a revision as heddle history prints it.
	At string `json:"at,omitempty"`
	// With asks about what it would be after a change, of which nothing is done.
	With []ChangeStep `json:"with,omitempty"`
}

// ReachAnswer is the answer.
type ReachAnswer struct {
	Revision int64 `json:"revision"` // of the store, that the answer is of
	// Time is that of the commit of the revision, of a question about the past.
	Time *time.Time `json:"time,omitempty"`
	// Refused has the steps of the change that the server would refuse; the others count.
	Refused []RefusedStep `json:"refused,omitempty"`
	From    *WhyEnd       `json:"from,omitempty"`
	To      *WhyEnd       `json:"to,omitempty"`
	Service string        `json:"service,omitempty"` // the only one, in words; "" = all
	Reaches []Reach       `json:"reaches"`           // by services, those of most ends first
	Silent  int           `json:"silent"`            // ports that reach, or are reached by, nothing
	// Pairs has the pairs of sets that By asked for in which some machine reaches another. Of very
	// many the first are there, and PairsOmitted counts the others.
	Pairs        []ReachPairs `json:"pairs,omitempty"`
	PairsOmitted int          `json:"pairsOmitted,omitempty"`
	// Names has what the ids in the answer stand for.
	Names map[string]flow.TraceName `json:"names,omitempty"`
}

// Reach is some services, and the ends that reach or are reached by exactly these.
type Reach struct {
	Version int `json:"version"` // of IP, 4 or 6
	// Always are the services that arrive and are answered, May those of which some connections do
	// by their source port or by chance, OneWay those that arrive and are not answered.
	Always  []ServiceRange `json:"always,omitempty"`
	May     []ServiceRange `json:"may,omitempty"`
	OneWay  []ServiceRange `json:"oneWay,omitempty"`
	Ports   []ReachPort    `json:"ports,omitempty"`
	Outside []ReachOutside `json:"outside,omitempty"`
}

// ServiceRange is services of one protocol, or several protocols as a whole.
type ServiceRange struct {
	Protocol string `json:"protocol"`       // a name or number, or a range of numbers such as "0-5"; "all" for all
	Low      uint16 `json:"low,omitempty"`  // first port, of ICMP first type<<8 | code; 0 with high 0 for all
	High     uint16 `json:"high,omitempty"` // last
	Text     string `json:"text"`           // in words, such as "tcp 22"
}

// ReachPort is a port at the other end.
type ReachPort struct {
	Port    string     `json:"port"` // id
	Name    string     `json:"name,omitempty"`
	Address netip.Addr `json:"address"`
	Groups  []string   `json:"groups,omitempty"` // ids of its security groups
}

// ReachOutside is addresses outside.
type ReachOutside struct {
	Address netip.Addr     `json:"address"` // of the machine, by which it and they know each other
	Ranges  []AddressRange `json:"ranges"`  // in order
	Text    string         `json:"text"`    // the ranges in words
}

// AddressRange is a range of addresses.
type AddressRange struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// ReachPairs is the number of pairs of a machine of one set and another of a second.
type ReachPairs struct {
	From    string `json:"from"`             // id of the group, network or project, "" for machines in none
	To      string `json:"to"`               // likewise
	All     int    `json:"all"`              // pairs that there are
	Reached int    `json:"reached"`          // in which the service works
	May     int    `json:"may,omitempty"`    // in which it works for some connections
	OneWay  int    `json:"oneWay,omitempty"` // in which packets arrive, and the answers do not
}

package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// AssertRequest is a list of rules about who reaches whom, to be held to the virtual network
// (explain §6).
type AssertRequest struct {
	Rules []Assertion `json:"rules"`
	// At asks about the past: a time in RFC 3339, or a revision as heddle history prints it.
	At string `json:"at,omitempty"`
	// With asks about what it would be after a change, of which nothing is done.
	With []ChangeStep `json:"with,omitempty"`
}

// Assertion is one rule: no machine of one selection ever reaches one of another but by some
// services, or all always do by some services.
type Assertion struct {
	Never  *AssertEnds     `json:"never,omitempty"`
	Always *AssertEnds     `json:"always,omitempty"`
	But    []AssertService `json:"but,omitempty"` // of Never
	By     []AssertService `json:"by,omitempty"`  // of Always
}

// AssertEnds is a pair of selections: who reaches whom.
type AssertEnds struct {
	From Selection `json:"from"`
	To   Selection `json:"to"`
}

// Selection is the machines that one of its members names; by Outside all addresses outside.
type Selection struct {
	Outside bool   `json:"outside,omitempty"`
	Port    string `json:"port,omitempty"`    // id or name
	Group   string `json:"group,omitempty"`   // security group, by id or name
	Network string `json:"network,omitempty"` // by id or name
	Project string `json:"project,omitempty"` // id
	Tag     string `json:"tag,omitempty"`     // of ports
}

// UnmarshalJSON reads a selection, or the word outside.
func (s *Selection) UnmarshalJSON(b []byte) error {
	if string(b) == `"outside"` {
		*s = Selection{Outside: true}
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		return errors.New(`a selection is "outside", or has port, group, network, project or tag`)
	}
	type plain Selection
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(s))
}

// AssertService is a service of a rule.
type AssertService struct {
	Protocol string `json:"proto"`             // name or number
	Port     uint16 `json:"port,omitempty"`    // first destination port, 0 for all
	LastPort uint16 `json:"to_port,omitempty"` // 0: only that one
}

// AssertAnswer is a list of the results of rules, in their order.
type AssertAnswer struct {
	Revision int64 `json:"revision"`
	// Time is that of the commit of the revision, of a question about the past.
	Time *time.Time `json:"time,omitempty"`
	// Refused has the steps of the change that the server would refuse; the others count.
	Refused []RefusedStep  `json:"refused,omitempty"`
	Results []AssertResult `json:"results"`
}

// AssertResult is the result of one rule.
type AssertResult struct {
	Pairs    int      `json:"pairs"`    // of machines that it is about
	Breaches int      `json:"breaches"` // pairs that break it
	Examples []Breach `json:"examples"` // some of them
}

// Breach is a pair of ends that breaks a rule.
type Breach struct {
	From     WhyEnd         `json:"from"`
	To       WhyEnd         `json:"to"`
	Services []ServiceRange `json:"services"`      // that arrive and should not, or should and do not
	Why      *WhyAnswer     `json:"why,omitempty"` // of the first, traced
}

package plan

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"heddle/internal/topology"
)

// Verdict is the status of a member that its checks have found.
type Verdict struct {
	MemberID string
	Status   string // topology.MemberActive or MemberInactive
}

// ParseHealthLine returns the verdict in a line that haproxy logs when a server's state changes, as
// "Server POOL/MEMBER is DOWN, reason: …".
func ParseHealthLine(line string) (v Verdict, ok bool) {
	rest, ok := strings.CutPrefix(line, "Server ")
	if !ok {
		return Verdict{}, false
	}
	name, state, ok := strings.Cut(rest, " is ")
	if !ok {
		return Verdict{}, false
	}
	_, member, ok := strings.Cut(name, "/")
	if !ok || member == "" || strings.ContainsAny(member, " /") {
		return Verdict{}, false
	}
	end := strings.IndexFunc(state, func(r rune) bool { return r < 'A' || r > 'Z' })
	if end < 0 {
		end = len(state)
	}
	status, ok := statusOf(state[:end])
	return Verdict{member, status}, ok
}

func statusOf(word string) (status string, ok bool) {
	switch word {
	case "UP":
		return topology.MemberActive, true
	case "DOWN":
		return topology.MemberInactive, true
	}
	return "", false
}

// maxStats bounds the table of statistics that is read, bytes.
const maxStats = 64 << 20

// ParseStats returns the verdicts in haproxy's table of statistics, as `show stat` prints it. A
// server that was not checked yet has none, nor has one of which checks fail that is not down yet:
// it may never have been up.
func ParseStats(text string) ([]Verdict, error) {
	if len(text) > maxStats {
		return nil, fmt.Errorf("haproxy's statistics have %d bytes, at most %d are read", len(text), maxStats)
	}
	table := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# ")))
	table.FieldsPerRecord, table.LazyQuotes, table.ReuseRecord = -1, true, true
	header, err := table.Read()
	if err != nil {
		return nil, fmt.Errorf("haproxy's statistics: %w", err)
	}
	columns := map[string]int{}
	for i, name := range header {
		columns[name] = i
	}
	name, hasName := columns["svname"]
	state, hasState := columns["status"]
	check, hasCheck := columns["check_status"]
	if !hasName || !hasState || !hasCheck {
		return nil, errors.New("haproxy's statistics have no column svname, status or check_status")
	}
	var all []Verdict
	for {
		row, err := table.Read()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("haproxy's statistics: %w", err)
		}
		if len(row) <= max(name, state, check) || row[check] == "" || strings.HasSuffix(row[check], "INI") {
			continue
		}
		word, _, failing := strings.Cut(row[state], " ") // as "UP 1/3", "DOWN 1/2"
		status, ok := statusOf(word)
		if ok && !(failing && status == topology.MemberActive) && row[name] != "" {
			all = append(all, Verdict{strings.Clone(row[name]), status})
		}
	}
}

// Counter turns the results of single checks into a verdict.
type Counter struct {
	Fall, Rise int
	status     string // "" before the first verdict
	run        int    // results in a row that contradict it
}

// NewCounter returns a counter that starts with a known status, "" for none.
func NewCounter(fall, rise int, status string) *Counter {
	return &Counter{Fall: fall, Rise: rise, status: status}
}

// Add counts a result, and returns the status after it; "" = not known yet. Like a member that
// haproxy starts to check, one without a status is active until enough checks have failed.
func (c *Counter) Add(success bool) string {
	up := c.status != topology.MemberInactive
	if success == up {
		c.run = 0
		if success {
			c.status = topology.MemberActive
		}
		return c.status
	}
	c.run++
	switch {
	case up && c.run >= c.Fall:
		c.status, c.run = topology.MemberInactive, 0
	case !up && c.run >= c.Rise:
		c.status, c.run = topology.MemberActive, 0
	}
	return c.status
}

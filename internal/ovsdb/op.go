package ovsdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// Op is one operation of a transaction (RFC 7047 §5.2).
type Op struct {
	kind, table string
	name        string // of the row, for errors
	members     map[string]any
}

// MarshalJSON writes the operation as a database takes it.
func (o Op) MarshalJSON() ([]byte, error) {
	all := maps.Clone(o.members)
	all["op"] = o.kind
	if o.table != "" {
		all["table"] = o.table
	}
	return json.Marshal(all)
}

// String names the operation in errors.
func (o Op) String() string {
	text := o.kind
	if o.table != "" {
		text += " " + o.table
	}
	if o.name != "" {
		text += " " + o.name
	}
	return text
}

// Inserts reports whether the operation makes a row of the table.
func (o Op) Inserts(table string) bool { return o.kind == "insert" && o.table == table }

// Called names the row that the operation is about, for errors.
func (o Op) Called(name string) Op {
	o.name = name
	return o
}

// Condition chooses rows: column, function (==, !=, includes, excludes, <, …) and value.
type Condition [3]any

// Mutation changes a column in place: column, mutator (insert, delete, +=, …) and value.
type Mutation [3]any

// Is chooses the row itself, by its [UUID] or, when the same transaction makes it, by its [Named].
func Is(row any) []Condition { return []Condition{{"_uuid", "==", row}} }

// Insert makes a row, which the rest of the transaction knows as Named(name).
func Insert(table string, name Named, row Row) Op {
	members := map[string]any{"row": row}
	if name != "" {
		members["uuid-name"] = string(name)
	}
	o := Op{kind: "insert", table: table, members: members}
	if text, ok := row["name"].(string); ok {
		o.name = text
	}
	return o
}

// Update sets columns of the rows that all conditions choose; no conditions choose every row.
func Update(table string, where []Condition, row Row) Op {
	return Op{kind: "update", table: table, members: map[string]any{"where": all(where), "row": row}}
}

// Delete deletes the chosen rows, which nothing may refer to when the transaction ends.
func Delete(table string, where []Condition) Op {
	return Op{kind: "delete", table: table, members: map[string]any{"where": all(where)}}
}

// Mutate changes columns of the chosen rows in place.
func Mutate(table string, where []Condition, mutations ...Mutation) Op {
	return Op{kind: "mutate", table: table, members: map[string]any{"where": all(where), "mutations": mutations}}
}

// Select reads columns of the chosen rows.
func Select(table string, where []Condition, columns ...string) Op {
	return Op{kind: "select", table: table, members: map[string]any{"where": all(where), "columns": columns}}
}

// Wait lets the transaction go on only when the chosen rows have (until "==") or have not ("!=")
// these values, and tries again for so long; 0 tries once. A transaction that waits in vain fails
// with the code "timed out".
func Wait(table string, where []Condition, until string, timeout time.Duration, columns []string, rows ...Row) Op {
	if rows == nil {
		rows = []Row{}
	}
	return Op{kind: "wait", table: table, members: map[string]any{"where": all(where), "until": until, "columns": columns,
		"rows": rows, "timeout": timeout.Milliseconds()}}
}

// Comment goes into the database's log.
func Comment(text string) Op { return Op{kind: "comment", members: map[string]any{"comment": text}} }

// all is a list, which must be there, of what may be none.
func all(where []Condition) []Condition {
	if where == nil {
		return []Condition{}
	}
	return where
}

// Result is the result of one operation.
type Result struct {
	Count int   // of rows, after update, mutate and delete
	UUID  UUID  // of the new row, after insert
	Rows  []Row // after select
}

// OpError names the operation that made a transaction fail. Nothing has changed then.
type OpError struct {
	Index   int    // of the operation; the number of operations when the commit of them all was refused
	Op      string // in words
	Code    string // such as "constraint violation", "referential integrity violation", "timed out"
	Details string // both in the server's words, of a long text the beginning
}

// Error names the operation, the code and the details.
func (e *OpError) Error() string {
	text := fmt.Sprintf("operation %d (%s): %s", e.Index, e.Op, e.Code)
	if e.Details != "" {
		text += ": " + e.Details
	}
	return text
}

// opResult is a result as it comes: nil for operations after one that failed.
type opResult struct {
	Count   int             `json:"count"`
	UUID    json.RawMessage `json:"uuid"`
	Rows    []Row           `json:"rows"`
	Error   string          `json:"error"`
	Details string          `json:"details"`
}

// readResults maps a database's answer to the operations.
func readResults(ops []Op, raw json.RawMessage) ([]Result, error) {
	var answers []*opResult
	if err := json.Unmarshal(raw, &answers); err != nil {
		return nil, fmt.Errorf("answer to a transaction: %w", err)
	}
	for i, a := range answers {
		if a != nil && a.Error != "" {
			what := "commit"
			if i < len(ops) {
				what = ops[i].String()
			}
			return nil, &OpError{Index: i, Op: what, Code: excerpt(a.Error), Details: excerpt(a.Details)}
		}
	}
	if len(answers) < len(ops) {
		return nil, fmt.Errorf("answer to a transaction of %d operations has %d results", len(ops), len(answers))
	}
	results := make([]Result, len(ops))
	for i := range ops {
		a := answers[i]
		if a == nil {
			return nil, fmt.Errorf("answer to a transaction: operation %d (%s) has no result", i, ops[i])
		}
		results[i] = Result{Count: a.Count, Rows: a.Rows}
		if a.UUID != nil {
			value, err := decode(a.UUID)
			if err != nil {
				return nil, fmt.Errorf("answer to a transaction: uuid of operation %d: %w", i, err)
			}
			results[i].UUID, _ = value.(UUID)
		}
	}
	return results, nil
}

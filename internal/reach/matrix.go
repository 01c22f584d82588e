package reach

import (
	"runtime"
	"sync"

	"heddle/internal/topology/simulate"
)

// Matrix is the answer for one service between all pairs of ends, by classes of ends that the world
// treats alike.
type Matrix struct {
	Classes [][]*End // the ends of each class
	// reach has a byte for each ordered pair of classes, by the number of the first.
	reach [][]Fate
}

// Fate is an outcome of the connections of one service between two ends.
type Fate uint8

// Fates, of which the greater is the better one.
const (
	Never  Fate = iota // nothing arrives
	OneWay             // it arrives, and the answers do not
	May                // some connections work
	Always             // all do
)

// Fate returns what becomes of connections from an end of one class to another end of a second.
func (m *Matrix) Fate(from, to int) Fate { return m.reach[from][to] }

// Service is the service of a matrix.
type Service struct {
	Protocol uint8
	Port     uint16 // 0 of a protocol without ports
}

// NewMatrix asks about all ordered pairs of ends of classes of [Classes]. It uses all processors.
// The world must not change meanwhile.
func NewMatrix(w *simulate.World, classes [][]*End, s Service, is4 bool, byPort func(portID string) *End) *Matrix {
	m := &Matrix{Classes: classes}
	m.reach = make([][]Fate, len(m.Classes))
	rows := make(chan int)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			a := NewAsker(w, byPort)
			for from := range rows {
				m.reach[from] = a.row(m.Classes, from, s, is4)
			}
		})
	}
	for from := range m.Classes {
		rows <- from
	}
	close(rows)
	all.Wait()
	return m
}

// row asks about the pairs of one class with each.
func (a *Asker) row(classes [][]*End, from int, s Service, is4 bool) []Fate {
	row := make([]Fate, len(classes))
	sender := classes[from][0]
	q := Question{From: sender, Source: sender.Address(is4), Protocol: s.Protocol, Port: s.Port}
	for to, members := range classes {
		q.To = members[0]
		if to == from {
			if len(members) < 2 {
				continue
			}
			q.To = members[1]
		}
		q.Target = q.To.Address(is4)
		row[to] = a.fate(&q)
	}
	return row
}

// fate answers a question about one service.
func (a *Asker) fate(q *Question) Fate {
	answer := a.Ask(q)
	switch {
	case !answer.Always.IsEmpty():
		return Always
	case !answer.May.IsEmpty():
		return May
	case !answer.OneWay.IsEmpty():
		return OneWay
	}
	return Never
}

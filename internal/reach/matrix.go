package reach

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"heddle/internal/topology/simulate"
)

// Matrix is the answer for one service between all pairs of ends, by classes of ends that the world
// treats alike.
type Matrix struct {
	Classes [][]*End // the ends of each class
	Asked   int      // pairs of classes that were asked about: others' answers stand for the rest
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

// NewMatrix asks about all ordered pairs of ends of a partition. It uses all processors. The world
// and the partition must not change meanwhile.
func NewMatrix(ctx context.Context, w *simulate.World, p *Partition, s Service, is4 bool, byPort func(portID string) *End) *Matrix {
	m := &Matrix{Classes: p.Classes(is4)}
	m.reach = make([][]Fate, len(m.Classes))
	senders := make([]simulate.Sender, len(m.Classes))
	for i, ends := range m.Classes {
		m.reach[i] = make([]Fate, len(m.Classes))
		senders[i] = p.Sender(ends[0], is4)
	}
	receivers := make(chan int)
	var asked atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			x := NewSharing(NewAsker(ctx, w, byPort), p)
			for to := range receivers {
				m.askAbout(to, x, senders, s, is4)
			}
			asked.Add(int64(x.Asked))
		})
	}
	for to := range m.Classes {
		receivers <- to
	}
	close(receivers)
	all.Wait()
	m.Asked = int(asked.Load())
	return m
}

// askAbout asks about the pairs of each class with one that receives.
func (m *Matrix) askAbout(to int, x *Sharing, senders []simulate.Sender, s Service, is4 bool) {
	x.Turn()
	receiver := m.Classes[to][0]
	q := Question{To: receiver, Target: receiver.Address(is4), Protocol: s.Protocol, Port: s.Port}
	for from, ends := range m.Classes {
		sender := senders[from]
		q.From = ends[0]
		if from == to {
			if len(ends) < 2 {
				continue
			}
			q.From = ends[1]
			sender = x.partition.Sender(ends[1], is4)
		}
		q.Source = q.From.Address(is4)
		a := x.Ask(&q, &sender)
		m.reach[from][to] = a.fate()
	}
}

// fate returns the best that becomes of connections.
func (a *Answer) fate() Fate {
	switch {
	case !a.Always.IsEmpty():
		return Always
	case !a.May.IsEmpty():
		return May
	case !a.OneWay.IsEmpty():
		return OneWay
	}
	return Never
}

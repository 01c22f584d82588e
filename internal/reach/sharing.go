package reach

import "heddle/internal/topology/simulate"

// Sharing answers the questions of many senders about one receiver. An answer stands for all
// senders for which the decisions that it rests on are the same. It belongs to one goroutine, and
// to the world as it is.
type Sharing struct {
	asker     *Asker
	partition *Partition
	compared  *simulate.Comparisons
	found     map[string][]shared // by the senders' keys
	Asked     int                 // questions that no other's answer has stood for
}

type shared struct {
	*simulate.Finding
	answer Answer
}

// NewSharing makes a Sharing for senders of a partition.
func NewSharing(a *Asker, p *Partition) *Sharing {
	return &Sharing{asker: a, partition: p, compared: p.keys.NewComparisons(), found: map[string][]shared{}}
}

// Turn turns to another receiver.
func (s *Sharing) Turn() { clear(s.found) }

// Ask answers a question, in which the sender is the opener. But for the sender, all questions are
// the same until the next Turn.
func (s *Sharing) Ask(q *Question, sender *simulate.Sender) Answer {
	for _, x := range s.found[sender.Key] {
		if x.HoldsFor(sender) {
			return x.answer
		}
	}
	s.Asked++
	s.compared.Reset()
	s.asker.compared = s.compared
	a := s.asker.Ask(q)
	s.asker.compared = nil
	if f, ok := s.compared.Finding(sender); ok {
		s.found[sender.Key] = append(s.found[sender.Key], shared{f, a})
	}
	return a
}

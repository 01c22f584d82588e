package task

import "testing"

func TestBell(t *testing.T) {
	t.Parallel()
	var b Bell
	b.Ring() // nobody waits
	first, second := b.Next(), b.Next()
	select {
	case <-first:
		t.Error("rung before the first ring")
	default:
	}
	b.Ring()
	<-first
	<-second
	select {
	case <-b.Next():
		t.Error("one ring is seen twice")
	default:
	}
}

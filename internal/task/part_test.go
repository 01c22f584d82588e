package task

import "testing"

func TestPart(t *testing.T) {
	t.Parallel()
	p := NewPart("keeper")
	if p.String() != "keeper" {
		t.Errorf("named %q", p.String())
	}
	select {
	case <-p.Ready():
		t.Error("ready before it does its work")
	default:
	}
	p.BeReady()
	p.BeReady()
	<-p.Ready()
}

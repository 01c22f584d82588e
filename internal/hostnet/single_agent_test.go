package hostnet

import "testing"

// TestAlone: who has a name keeps a second out, and lets the next in when he is gone.
func TestAlone(t *testing.T) {
	first, err := Alone("test-agent")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Alone("test-agent"); err == nil {
		t.Fatal("there are two")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := Alone("test-agent")
	if err != nil {
		t.Fatal(err)
	}
	checkHeld(t, "test-agent", true)
	checkHeld(t, "test", false)
	next.Close()
	checkHeld(t, "test-agent", false)
}

func checkHeld(t *testing.T, name string, want bool) {
	t.Helper()
	if held, err := Held(name); err != nil || held != want {
		t.Errorf("%s is held: %t, %v, want %t", name, held, err, want)
	}
}

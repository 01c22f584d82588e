package command

import "testing"

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	known := []string{"network", "name", "mtu", "list", "set", "show"}
	for word, want := range map[string]string{
		"netwrok":  ": did you mean --network?",
		"netwrk":   ": did you mean --network?",
		"nam":      ": did you mean --name?",
		"lst":      ": did you mean --list?",
		"s":        ": did you mean --set or --show?",
		"mut":      ": did you mean --mtu?",
		"ls":       ": did you mean --list?",
		"update":   ": did you mean --set?",
		"rm":       "",
		"frobnify": "",
		"":         "",
	} {
		if got := DidYouMean("--", word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

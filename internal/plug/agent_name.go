package plug

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// AgentName returns the name of this host's agent: that which agents with this state directory have
// had, else the host's.
func AgentName(state string) (string, error) {
	file := filepath.Join(state, "agent.json")
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return os.Hostname()
	}
	if err != nil {
		return "", fmt.Errorf("name of this host's agent: %w", err)
	}
	var record struct{ Names []string }
	if err := json.Unmarshal(raw, &record); err != nil || len(record.Names) != 1 {
		return "", fmt.Errorf("agents with the state directory %s have had the names %q: say with --host or \"host\" which one serves the port", state, record.Names)
	}
	return record.Names[0], nil
}

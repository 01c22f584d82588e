package topology

import (
	"encoding/json"
	"fmt"
)

// MarshalJSON writes [low, high], null for an open end.
func (r Range) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]*uint16{r.Low, r.High})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Range) UnmarshalJSON(b []byte) error {
	var ends []*uint16
	if err := json.Unmarshal(b, &ends); err != nil {
		return fmt.Errorf("range %s: want [low, high], each 0–65535 or null: %w", b, err)
	}
	if len(ends) != 2 {
		return fmt.Errorf("range %s has %d ends: want [low, high]", b, len(ends))
	}
	r.Low, r.High = ends[0], ends[1]
	return nil
}

func (r Range) Contains(n uint16) bool {
	return (r.Low == nil || *r.Low <= n) && (r.High == nil || n <= *r.High)
}

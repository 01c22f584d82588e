package cli

import "testing"

// The objects that the demo applies, and that the README points to, are right.
func TestRoutedObjects(t *testing.T) {
	t.Parallel()
	objects, err := readManifests("demo_routed.yaml", []byte(routedObjects))
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 11 {
		t.Errorf("%d objects, want 11: %v", len(objects), objects)
	}
}

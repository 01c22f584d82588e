package xapi

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"heddle/internal/store/storetest"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// TestUnknownMembers: those of an object's fields, too, are kept.
func TestUnknownMembers(t *testing.T) {
	storetest.UnknownMembers{
		Tables:  tables(),
		Derived: []string{"xen-order", "xen-order-report", "xen-host-report", "xen-bridge"},
		Change: func(table string, record any) {
			if o, ok := record.(*objects.Object); ok {
				o.Class = strings.TrimPrefix(table, "xen-")
				o.Fields = sampleFields(o.Class)
			}
		},
	}.Test(t)
}

// sampleFields returns the fields of an object; its maps have the key "x".
func sampleFields(class string) model.Record {
	fields := model.New(class)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if m, ok := fields[name].(map[string]string); ok {
			m["x"] = "x"
		}
	}
	return fields
}

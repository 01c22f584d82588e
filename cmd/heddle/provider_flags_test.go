package main

import (
	"reflect"
	"testing"

	"heddle/internal/control"
)

func TestParsePhysicalNetworks(t *testing.T) {
	t.Parallel()
	got, err := parsePhysicalNetworks([]string{"office", "lab:flat:100-199:300-300"})
	want := map[string]control.PhysicalNetwork{
		"office": {},
		"lab":    {Flat: true, VLANs: []control.IDRange{{Min: 100, Max: 199}, {Min: 300, Max: 300}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, spec := range []string{"", ":flat", "lab:", "lab:Flat", "lab:0-5", "lab:1-4095", "lab:9-8", "lab:7", "lab:1-2-3"} {
		if got, err := parsePhysicalNetworks([]string{spec}); err == nil {
			t.Errorf("%q is %v", spec, got)
		}
	}
}

func TestParseIDRange(t *testing.T) {
	t.Parallel()
	if got, err := parseIDRange("1-2000", 2000); err != nil || got != (control.IDRange{Min: 1, Max: 2000}) {
		t.Errorf("1-2000: %v, %v", got, err)
	}
	for _, text := range []string{"", "5", "-5", "0-5", "1-2001", "6-5", "1-", "a-b", "1-99999999999999999999"} {
		if got, err := parseIDRange(text, 2000); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

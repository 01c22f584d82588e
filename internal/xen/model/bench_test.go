package model

import "testing"

func BenchmarkMarshal(b *testing.B) {
	r := New("PIF")
	for b.Loop() {
		if _, err := Marshal("PIF", r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	raw, err := Marshal("PIF", New("PIF"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Unmarshal("PIF", raw); err != nil {
			b.Fatal(err)
		}
	}
}

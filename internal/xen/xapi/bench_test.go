package xapi

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// BenchmarkRecords reads 1,000 PIFs over HTTP by each transport (the aim: 50 ms), as a client
// decodes them.
func BenchmarkRecords(b *testing.B) {
	s, c := served(b)
	pifs(b, s, 1000)
	for _, json := range []bool{false, true} {
		b.Run(map[bool]string{false: "XML", true: "JSON"}[json], func(b *testing.B) {
			c := *c
			c.t, c.json = b, json
			for b.Loop() {
				if n := len(c.records("PIF")); n != 1000 {
					b.Fatal(n)
				}
			}
		})
	}
}

// BenchmarkDispatch is the server's own part of it: finding the records, and writing them.
func BenchmarkDispatch(b *testing.B) {
	s, c := served(b)
	pifs(b, s, 1000)
	b.Run("records", func(b *testing.B) {
		for b.Loop() {
			everyRecord(s.now(), "PIF", nil)
		}
	})
	b.Run("XML", func(b *testing.B) {
		call := []byte(xmlCall("PIF.get_all_records", c.session))
		for b.Loop() {
			if _, err := s.answerXML(b.Context(), netip.Addr{}, call); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// pifs makes as many PIFs, ten to a host and half of them with a tunnel on the other half.
func pifs(t testing.TB, s *Server, n int) {
	t.Helper()
	var host *objects.Object
	var transport string
	for i := range n {
		change(t, s, func(tx *records.Tx) error {
			if i%10 == 0 {
				host = newObject("host", model.Record{"name_label": fmt.Sprint(i)})
				if err := put(tx, host); err != nil {
					return err
				}
			}
			network := newObject("network", model.Record{"bridge": fmt.Sprint("br", i)})
			pif := newObject("PIF", model.Record{"host": host.Ref, "network": network.Ref, "device": fmt.Sprint("eth", i%10), "MAC": "02:00:00:00:00:01", "IP": "192.0.2.1",
				"other_config": map[string]string{"a": "b"}})
			if err := put(tx, network); err != nil {
				return err
			}
			if i%2 == 0 {
				transport = pif.Ref
			} else if err := put(tx, newObject("tunnel", model.Record{"access_PIF": pif.Ref, "transport_PIF": transport})); err != nil {
				return err
			}
			return put(tx, pif)
		})
	}
}

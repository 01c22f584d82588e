package client

import (
	"fmt"
	"testing"

	"heddle/internal/xen/model"
	"heddle/internal/xen/wire"
)

// BenchmarkRecords reads an answer of 1,000 PIFs, over each transport.
func BenchmarkRecords(b *testing.B) {
	all := map[string]model.Record{}
	for i := range 1000 {
		r := model.New("PIF")
		for j := range model.Lookup("PIF").Fields {
			if f := &model.Lookup("PIF").Fields[j]; f.Far != nil {
				r[f.Name] = model.Zero(f.Type)
			}
		}
		all[fmt.Sprintf("OpaqueRef:%036d", i)] = r
	}
	call := model.Calls()["PIF.get_all_records"]
	replies := map[string][]byte{"XML-RPC": wire.XMLReply(call.Result, all, nil), "JSON-RPC": wire.JSONReply(&wire.JSONCall{Version2: true, ID: []byte("0")}, call.Result, all, nil)}
	for name, reply := range replies {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				raw, err := codecFor(name == "JSON-RPC").decode(reply)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := typed(&call.Result, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

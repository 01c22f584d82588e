package wire

import (
	"fmt"
	"testing"

	"heddle/internal/xen/model"
)

// thousandPIFs returns the answer of PIF.get_all_records in a large pool.
func thousandPIFs() (model.Type, map[string]model.Record) {
	all := map[string]model.Record{}
	for i := range 1000 {
		r := model.New("PIF")
		for _, f := range model.Lookup("PIF").Fields {
			if f.Far != nil {
				r[f.Name] = model.Zero(f.Type)
			}
		}
		r["uuid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		r["device"], r["MAC"], r["IP"] = fmt.Sprintf("tunnel%d", i), "02:00:00:00:00:01", "192.0.2.1"
		r["network"], r["host"] = "OpaqueRef:8d6a3ba4-4ef1-4b57-9d58-5f3a5d9b0001", "OpaqueRef:8d6a3ba4-4ef1-4b57-9d58-5f3a5d9b0002"
		r["other_config"] = map[string]string{"a": "b", "c": "d"}
		all[fmt.Sprintf("OpaqueRef:00000000-0000-4000-8000-%012d", i)] = r
	}
	return model.Calls()["PIF.get_all_records"].Result, all
}

func BenchmarkXMLReply(b *testing.B) {
	t, pifs := thousandPIFs()
	for b.Loop() {
		b.SetBytes(int64(len(XMLReply(t, pifs, nil))))
	}
}

func BenchmarkJSONReply(b *testing.B) {
	t, pifs := thousandPIFs()
	call := &JSONCall{ID: []byte("0"), Version2: true}
	for b.Loop() {
		b.SetBytes(int64(len(JSONReply(call, t, pifs, nil))))
	}
}

func BenchmarkDecodeXMLReply(b *testing.B) {
	t, pifs := thousandPIFs()
	body := XMLReply(t, pifs, nil)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := DecodeXMLReply(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeJSONReply(b *testing.B) {
	t, pifs := thousandPIFs()
	body := JSONReply(&JSONCall{ID: []byte("0"), Version2: true}, t, pifs, nil)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := DecodeJSONReply(body); err != nil {
			b.Fatal(err)
		}
	}
}

package client

import (
	"testing"

	"heddle/internal/xen/model"
	"heddle/internal/xen/wire"
)

// FuzzReply: whatever a server answers, records have all fields of their class, each of its type,
// or are refused.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","result":{"OpaqueRef:1":{"uuid":"1","MTU":1500,"other_config":{"a":"b"},"tags":null,"purpose":["new"],"PIFs":[1]}},"id":0}`))
	f.Add([]byte(`{"jsonrpc":"2.0","result":{"events":[{"class":"pif","operation":"mod","ref":"OpaqueRef:1","snapshot":{"VLAN":"-1"}}],"token":"1,2","valid_ref_counts":{"pif":1.5}},"id":0}`))
	f.Add([]byte(`{"jsonrpc":"2.0","error":{"code":1,"message":"SESSION_INVALID","data":["x"]},"id":0}`))
	f.Fuzz(func(t *testing.T, reply []byte) {
		raw, err := wire.DecodeJSONReply(reply)
		if err != nil {
			return
		}
		if b, err := batch(raw); err == nil {
			for _, e := range b.Events {
				if e.Operation != Del {
					checkRecord(t, e.Class, e.Record)
				}
			}
		}
		for _, c := range model.Classes() {
			call := model.Calls()[c.Name+".get_all_records"]
			if call == nil {
				continue
			}
			all, err := typed(&call.Result, raw)
			if err != nil {
				continue
			}
			for _, r := range all.(map[string]model.Record) {
				checkRecord(t, c.Name, r)
			}
		}
	})
}

func checkRecord(t *testing.T, class string, r model.Record) {
	t.Helper()
	c := model.Lookup(class)
	if c == nil {
		return
	}
	for i := range c.Fields {
		fl := &c.Fields[i]
		v, ok := r[fl.Name]
		if !ok {
			t.Errorf("%s without %s", class, fl.Name)
		} else if err := model.Check(loose(fl.Type), v); err != nil {
			t.Errorf("%s.%s %v", class, fl.Name, err)
		}
	}
}

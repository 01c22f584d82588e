package strictjson

import (
	"strings"
	"testing"
)

// BenchmarkRead reads the body of a request to create a port.
func BenchmarkRead(b *testing.B) {
	const text = `{"port":{"network_id":"5d9c1a3e-8a57-4a5e-9f3e-0f6b8a6a0c11","name":"vm1","fixed_ips":[{"ip_address":"10.0.0.5"}],"binding:host_id":"h1","device_owner":"compute:nova"}}`
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Read(strings.NewReader(text), int64(len(text)), Limits{Depth: 64, Values: 50_000, Item: 1 << 18}); err != nil {
			b.Fatal(err)
		}
	}
}

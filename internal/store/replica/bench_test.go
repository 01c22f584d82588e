package replica_test

import (
	"context"
	"fmt"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
)

// BenchmarkChange is from the beginning of a commit to its change in a replica: within the server's
// process, and over loopback with one watch and with five, as an agent has them.
func BenchmarkChange(b *testing.B) {
	server, err := backend.Open(b.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: b.TempDir(), Listen: "127.0.0.1:0", NoFsync: true}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Close() })
	agent, err := backend.Open(b.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{server.Endpoint()}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { agent.Close() })
	var tables []snapshot.Table
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		tables = append(tables, words(name, "/"+name+"/"))
	}
	for _, c := range []struct {
		name    string
		store   store.Store
		options replica.Options
	}{
		{"in process", server, replica.Options{Watch: "/"}},
		{"in process, five watches", server, replica.Options{}},
		{"over loopback", agent, replica.Options{Watch: "/"}},
		{"over loopback, five watches", agent, replica.Options{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := replica.New(c.store, c.options, tables...)
			run(b, r)
			<-r.Ready()
			n := 0
			for b.Loop() {
				n++
				at(b, r, commit(b, server, put("/a/1", fmt.Sprint(n))))
			}
		})
	}
}

// BenchmarkFirstList lists 10,000 records with an index.
func BenchmarkFirstList(b *testing.B) {
	st := store.NewMemory()
	for i := range 10_000 {
		commit(b, st, put(fmt.Sprintf("/a/%d", i), "a few words of text"))
	}
	for b.Loop() {
		r := replica.New(st, replica.Options{}, words("a", "/a/"))
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		<-r.Ready()
		cancel()
		<-done
	}
}

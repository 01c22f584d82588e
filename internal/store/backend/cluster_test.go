package backend_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
	"heddle/internal/store/storetest"
)

// writerVariable makes a process of the test binary a writer, which gets killed.
const writerVariable = "HEDDLE_STORE_TEST_WRITER"

func TestMain(m *testing.M) {
	storetest.BeMember()
	if dir := os.Getenv(writerVariable); dir != "" {
		go storetest.EndWithParent()
		fmt.Println("failed:", runWriter(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// startCluster runs a cluster with authentication on three addresses of loopback.
func startCluster(t testing.TB, network int) *storetest.Cluster {
	t.Helper()
	var o storetest.Options
	for i := range o.Addresses {
		o.Addresses[i] = fmt.Sprintf("127.0.%d.%d", network, i+1)
	}
	c := storetest.Start(t, o)
	c.Protect(t)
	return c
}

// open connects to a cluster until the test ends.
// open connects to a cluster, which on a busy machine may take longer to log in than one attempt.
func open(t testing.TB, o backend.Cluster) *backend.Etcd {
	t.Helper()
	var st *backend.Etcd
	var err error
	for until := time.Now().Add(time.Minute); ; {
		st, err = backend.Open(t.Context(), backend.Options{Cluster: &o})
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(until) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// byPassword has a certificate that etcd does not know, and a user that it does.
func byPassword(c *storetest.Cluster) backend.Cluster {
	o := c.As("nobody")
	o.User, o.Password = storetest.User, storetest.Password
	return o
}

// A pet has a name of its own and an owner who must exist.
type owner struct{ ID string }

type pet struct{ ID, Owner, Name string }

type pets struct {
	owners *records.Table[owner]
	pets   *records.Table[pet]
	store  store.Store
	db     *records.DB
}

func openPets(t testing.TB, st store.Store) *pets {
	t.Helper()
	p := newPets(st)
	rep := replica.New(st, replica.Options{Watch: "/heddle/"}, p.owners, p.pets)
	runReplica(t, rep)
	p.db = records.NewDB(st, rep)
	return p
}

// runReplica runs it until the test ends.
func runReplica(t testing.TB, rep *replica.Replica) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rep.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func newPets(st store.Store) *pets {
	p := &pets{store: st}
	p.owners = records.NewTable("owner", "/heddle/owners/", func(o *owner) string { return o.ID })
	p.pets = records.NewTable("pet", "/heddle/pets/", func(p *pet) string { return p.ID },
		records.Ref("owner", p.owners, func(p *pet) []string { return []string{p.Owner} }, records.Refuse()),
		records.Unique("name", func(p *pet) []string { return []string{p.Name} }))
	return p
}

func (p *pets) put(ctx context.Context, one *pet) error {
	_, err := p.db.Update(ctx, func(tx *records.Tx) error {
		if _, err := p.owners.Need(tx, one.Owner); err != nil {
			return err
		}
		return p.pets.Put(tx, one)
	})
	return err
}

func (p *pets) verify(t testing.TB) {
	t.Helper()
	if err := records.Verify(t.Context(), p.store, p.owners, p.pets); err != nil {
		t.Error("the store's rules are broken:", err)
	}
}

// Two servers write to a cluster with TLS and authentication while its leader is killed: what was
// acknowledged is there, once, with all that belongs to it; and writing goes on.
func TestClusterLosesAMember(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2)
	servers := []*pets{openPets(t, open(t, c.As("root"))), openPets(t, open(t, byPassword(c)))}
	if _, err := servers[0].db.Update(t.Context(), func(tx *records.Tx) error { return servers[0].owners.Put(tx, &owner{"o"}) }); err != nil {
		t.Fatal(err)
	}

	const before, after = 200, 400 // acknowledged writes
	var acked sync.Map
	var count atomic.Int64
	killed := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			p := servers[w%2]
			for i := 0; count.Load() < after; i++ {
				// Writers of both servers want the same names: one of each pair gets it.
				one := &pet{ID: fmt.Sprintf("%d-%d", w, i), Owner: "o", Name: fmt.Sprintf("%d-%d", w/2, i)}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				err := p.put(ctx, one)
				cancel()
				var taken *records.TakenError
				switch {
				case err == nil:
					acked.Store(one.ID, one.Name)
					if count.Add(1) == before {
						close(killed)
					}
				case errors.As(err, &taken):
				case errors.Is(err, store.ErrUnavailable): // it may have been written or not
				default:
					t.Errorf("%s: %v", one.ID, err)
					return
				}
			}
		})
	}
	<-killed
	c.Kill(c.Leader(t))
	writers.Wait()

	for _, p := range servers {
		snap, err := p.db.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lost := 0
		acked.Range(func(id, name any) bool {
			if one, ok := p.pets.Peek(snap, id.(string)); !ok || one.Name != name {
				lost++
			}
			return true
		})
		if lost > 0 {
			t.Errorf("%d acknowledged writes are lost", lost)
		}
		p.verify(t)
	}
}

// The embedded store moves into a cluster.
func TestMoveToCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	embedded, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: t.TempDir(), Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	from := openPets(t, embedded)
	if _, err := from.db.Update(t.Context(), func(tx *records.Tx) error {
		err := from.owners.Put(tx, &owner{"o"})
		for i := range 500 {
			err = errors.Join(err, from.pets.Put(tx, &pet{fmt.Sprint(i), "o", fmt.Sprint(i)}))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	to := open(t, c.As("root"))
	if err := backend.Copy(t.Context(), embedded, to, nil); err != nil {
		t.Fatal(err)
	}
	moved := openPets(t, to)
	moved.verify(t)
	if err := moved.put(t.Context(), &pet{"x", "o", "7"}); !errors.As(err, new(*records.TakenError)) {
		t.Errorf("a name that was taken before the move: %v", err)
	}
}

// A server that comes with a password sees what others write after all members were restarted,
// though they have forgotten who it is and it asks for nothing itself.
func TestClusterForgetsTokens(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4)
	quiet := openPets(t, open(t, byPassword(c)))
	snap, err := quiet.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{})
	rep := replica.New(quiet.store, replica.Options{Watch: "/heddle/"}, quiet.owners)
	rep.OnChange(func(u snapshot.Update) {
		if u.Next.Len("owner") > 0 {
			close(changed)
		}
	})
	runReplica(t, rep)
	<-rep.Ready()
	c.Stop()
	c.Restart(t)
	writer := openPets(t, open(t, c.As("root")))
	if _, err := writer.db.Update(t.Context(), func(tx *records.Tx) error { return writer.owners.Put(tx, &owner{"o"}) }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(30 * time.Second):
		t.Error("nothing is seen, since revision", snap.Revision())
	}
}

// runWriter writes pets in pairs into the store in dir, and says of each pair when it is
// acknowledged.
func runWriter(dir string) error {
	ctx := context.Background()
	st, err := backend.Open(ctx, backend.Options{Embedded: &backend.Embedded{DataDir: dir, Tick: 10 * time.Millisecond}})
	if err != nil {
		return err
	}
	p := newPets(st)
	rep := replica.New(st, replica.Options{Watch: "/heddle/"}, p.owners, p.pets)
	go rep.Run(ctx)
	p.db = records.NewDB(st, rep)
	snap, err := p.db.View(ctx)
	if err != nil {
		return err
	}
	for i := p.pets.Count(snap); ; i += 2 {
		id := fmt.Sprint(i)
		_, err := p.db.Update(ctx, func(tx *records.Tx) error {
			return errors.Join(p.owners.Put(tx, &owner{id}), p.pets.Put(tx, &pet{id + "a", id, id + "a"}), p.pets.Put(tx, &pet{id + "b", id, id + "b"}))
		})
		if err != nil {
			return err
		}
		fmt.Println(id)
	}
}

// A server killed at any moment leaves nothing half-made, and loses nothing that it acknowledged.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerVariable+"="+dir)
		cmd.Stderr = t.Output()
		_, err1 := cmd.StdinPipe() // ends with this process
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 20+17*round; n++ {
			var id string
			if _, err := fmt.Fscan(out, &id); err != nil {
				cmd.Process.Kill()
				t.Fatal(err, cmd.Wait())
			}
			acked[id] = true
		}
		cmd.Process.Kill()
		cmd.Wait() // it tells that it was killed
	}
	st, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: dir, Tick: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	p := openPets(t, st)
	p.verify(t)
	snap, err := p.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id := range acked {
		for _, half := range []string{"a", "b"} {
			if _, ok := p.pets.Peek(snap, id+half); !ok {
				t.Errorf("%s was acknowledged and is lost", id+half)
			}
		}
	}
	if n, m := p.pets.Count(snap), p.owners.Count(snap); n != 2*m {
		t.Errorf("%d pets of %d owners: some are half-made", n, m)
	}
}

// certified returns how to reach the cluster as a host that root has allowed.
func certified(t *testing.T, c *storetest.Cluster, root *backend.Etcd, host string) backend.Cluster {
	t.Helper()
	if err := root.AllowHost(t.Context(), host, "name-of-"+host, ""); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err1 := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	cert, err2 := root.Issue(host, "", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), time.Hour)
	raw, err3 := x509.MarshalPKCS8PrivateKey(key)
	pair, err4 := tls.X509KeyPair(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	ca, err5 := os.ReadFile(filepath.Join(c.Dir, "ca.crt"))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return backend.Cluster{Endpoints: c.Endpoints, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, SkipLimits: true}
}

// Over a cluster, too, a host that exceeds its limits is cut off and named, and what it wrote is
// deleted; others go on.
func TestGreedyHostOfACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 6)
	authority, err := backend.LoadAuthority(filepath.Join(c.Dir, "ca.crt"), filepath.Join(c.Dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	o := c.As("root")
	o.Authority = authority
	root := open(t, o)
	greedy, modest := open(t, certified(t, c, root, "greedy")), open(t, certified(t, c, root, "modest"))

	accounts := backend.NewHostAccounts(root, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- accounts.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	cuts, failed := root.Watch(t.Context(), 1, backend.CutOffPrefix)
	for i := 0; ; i++ {
		var ops []store.Op
		for j := range 500 {
			ops = append(ops, store.Op{Key: fmt.Sprintf("/heddle/state/greedy/%d-%d", i, j)})
		}
		_, err := greedy.Commit(t.Context(), nil, ops)
		if errors.Is(err, store.ErrDenied) {
			break
		}
		if err != nil && !errors.Is(err, store.ErrUnavailable) || i == 200 {
			t.Fatalf("after %d keys: %v, want ErrDenied", 500*i, err)
		}
	}
	change := <-cuts
	for len(change.Events) == 0 && change.Revision > 0 { // progress alone
		change = <-cuts
	}
	if len(change.Events) != 1 || change.Events[0].Key != backend.CutOffPrefix+"greedy" || !strings.Contains(string(change.Events[0].Value), "more than 16384 keys") {
		t.Errorf("the cut names %+v, %v", change.Events, failed())
	}
	if _, err := modest.Commit(t.Context(), nil, []store.Op{{Key: "/heddle/state/modest/alive"}}); err != nil {
		t.Error("another host cannot write:", err)
	}
	deadline, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for {
		kvs, _, err := root.List(deadline, "/heddle/state/greedy/")
		if err != nil {
			t.Fatal("what it wrote is not deleted:", err)
		}
		if len(kvs) == 0 {
			return
		}
	}
}

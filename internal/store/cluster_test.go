package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
)

// The test binary, called with this variable, is another process: a member of a cluster, or a writer that gets killed.
const roleVariable = "HEDDLE_STORE_TEST_ROLE"

func TestMain(m *testing.M) {
	role, arg, _ := strings.Cut(os.Getenv(roleVariable), " ")
	if role == "" {
		os.Exit(m.Run())
	}
	go func() {
		io.Copy(io.Discard, os.Stdin) // ends with the test's process, however that ends
		os.Exit(1)
	}()
	switch role {
	case "member":
		exitOn(runMember(arg))
	case "writer":
		exitOn(runWriter(arg))
	}
}

func exitOn(err error) {
	fmt.Println("failed:", err)
	os.Exit(1)
}

// start runs the test binary in a role and returns when it has printed "ready". It is killed with the test.
func start(t testing.TB, role string) (*exec.Cmd, *os.File) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		kill(cmd)
		stdin.Close()
		r.Close()
	})
	return cmd, r
}

func kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// runMember is one of three members, "<number> <dir> <client ports> <peer ports>", with TLS towards clients and peers.
func runMember(arg string) error {
	var number int
	var dir string
	var clients, peers [3]int
	if _, err := fmt.Sscan(arg, &number, &dir, &clients[0], &clients[1], &clients[2], &peers[0], &peers[1], &peers[2]); err != nil {
		return err
	}
	at := func(port int) []url.URL {
		return []url.URL{{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", port)}}
	}
	c := embed.NewConfig()
	c.Name = fmt.Sprintf("m%d", number)
	c.Dir = filepath.Join(dir, c.Name)
	c.LogLevel, c.LogOutputs = "fatal", []string{"stderr"}
	c.TickMs, c.ElectionMs = 20, 200
	c.MaxTxnOps, c.MaxRequestBytes = store.MaxTxnOps, store.MaxRequestBytes
	c.ListenClientUrls, c.AdvertiseClientUrls = at(clients[number]), at(clients[number])
	c.ListenPeerUrls, c.AdvertisePeerUrls = at(peers[number]), at(peers[number])
	var members []string
	for i, p := range peers {
		members = append(members, fmt.Sprintf("m%d=https://127.0.0.1:%d", i, p))
	}
	c.InitialCluster = strings.Join(members, ",")
	c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = filepath.Join(dir, "member.crt"), filepath.Join(dir, "member.key")
	c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = filepath.Join(dir, "ca.crt"), true
	c.PeerTLSInfo = c.ClientTLSInfo
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	<-e.Server.ReadyNotify()
	fmt.Println("ready")
	return <-e.Err()
}

// freePorts are ports of loopback that nobody listened on a moment ago.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// cluster is three members in processes of their own, with TLS and authentication.
type cluster struct {
	dir       string
	members   [3]*exec.Cmd
	endpoints []string
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{dir: t.TempDir()}
	store.MakePairs(t, c.dir, "member", "root", "nobody")
	ports := freePorts(t, 6)
	list := strings.Trim(fmt.Sprint(ports), "[]")
	var outputs [3]*os.File
	for i := range c.members {
		c.members[i], outputs[i] = start(t, fmt.Sprintf("member %d %s %s", i, c.dir, list))
		c.endpoints = append(c.endpoints, fmt.Sprintf("https://127.0.0.1:%d", ports[i]))
	}
	for i, out := range outputs {
		var word string
		if _, err := fmt.Fscan(out, &word); err != nil || word != "ready" {
			t.Fatalf("member %d: %q, %v", i, word, err)
		}
	}
	return c
}

func (c *cluster) options(cn string) store.Cluster {
	return store.Cluster{
		Endpoints: c.endpoints,
		CAFile:    filepath.Join(c.dir, "ca.crt"),
		CertFile:  filepath.Join(c.dir, cn+".crt"),
		KeyFile:   filepath.Join(c.dir, cn+".key"),
	}
}

// protect makes etcd's users root, by certificate, and heddle, by password, and has etcd ask who somebody is.
func (c *cluster) protect(t testing.TB) {
	t.Helper()
	o := c.options("root")
	config, err := o.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	_, err1 := client.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
	_, err2 := client.UserGrantRole(ctx, "root", "root")
	_, err3 := client.UserAdd(ctx, "heddle", "secret")
	_, err4 := client.RoleAdd(ctx, "heddle")
	_, err5 := client.RoleGrantPermission(ctx, "heddle", "/", "0", clientv3.PermissionType(clientv3.PermReadWrite))
	_, err6 := client.UserGrantRole(ctx, "heddle", "heddle")
	_, err7 := client.AuthEnable(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
}

// leader is the number of the member that leads now.
func (c *cluster) leader(t testing.TB) int {
	t.Helper()
	o := c.options("root")
	config, err := o.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i, e := range c.endpoints {
		s, err := client.Status(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if s.Leader == s.Header.MemberId {
			return i
		}
	}
	t.Fatal("the cluster has no leader")
	return 0
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rep.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	p.db = records.NewDB(st, rep)
	return p
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

// Two servers write to a cluster with TLS and authentication while its leader is killed: what was acknowledged is
// there, once, with all that belongs to it; and writing goes on.
func TestClusterLosesAMember(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.protect(t)
	byCertificate := c.options("root")
	byPassword := c.options("nobody")
	byPassword.User, byPassword.Password = "heddle", "secret"
	var servers []*pets
	for _, o := range []store.Cluster{byCertificate, byPassword} {
		st, err := store.Open(t.Context(), store.Options{Cluster: &o})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		servers = append(servers, openPets(t, st))
	}
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
	kill(c.members[c.leader(t)])
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
	c := startCluster(t)
	c.protect(t)
	embedded, err := store.Open(t.Context(), store.Options{Embedded: &store.Embedded{DataDir: t.TempDir(), Tick: 10 * time.Millisecond, NoFsync: true}})
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
	o := c.options("root")
	to, err := store.Open(t.Context(), store.Options{Cluster: &o})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := store.Copy(t.Context(), embedded, to, nil); err != nil {
		t.Fatal(err)
	}
	moved := openPets(t, to)
	moved.verify(t)
	if err := moved.put(t.Context(), &pet{"x", "o", "7"}); !errors.As(err, new(*records.TakenError)) {
		t.Errorf("a name that was taken before the move: %v", err)
	}
}

// runWriter writes pets in pairs into the store in dir, and says of each pair when it is acknowledged.
func runWriter(dir string) error {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Options{Embedded: &store.Embedded{DataDir: dir, Tick: 10 * time.Millisecond}})
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
	fmt.Println("ready")
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
		cmd, out := start(t, "writer "+dir)
		for n := 0; n < 20+17*round; n++ {
			var id string
			if _, err := fmt.Fscan(out, &id); err != nil {
				t.Fatal(err)
			}
			acked[id] = true
		}
		kill(cmd)
	}
	delete(acked, "ready")
	st, err := store.Open(t.Context(), store.Options{Embedded: &store.Embedded{DataDir: dir, Tick: 10 * time.Millisecond}})
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

package hosts

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/follow"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/task"
)

// locations say how hosts reach the servers and the store.
type locations struct {
	Servers   []string `json:"servers,omitempty"`   // base URLs of the API
	Pins      []string `json:"pins,omitempty"`      // fingerprints of the certificates that they present
	Endpoints []string `json:"endpoints,omitempty"` // of the store, URLs
	CA        string   `json:"ca,omitempty"`        // authorities of the store's servers, PEM
	Signer    string   `json:"signer,omitempty"`    // key identifier of the authority that signs hosts' certificates, hex
}

// add adds a server that is alive.
func (l *locations) add(r schema.Reach) {
	l.Servers = appendNew(l.Servers, r.URLs...)
	if r.Pin != "" {
		l.Pins = appendNew(l.Pins, r.Pin)
	}
	l.Endpoints = appendNew(l.Endpoints, r.StoreURLs...)
	l.CA = backend.Union(l.CA, r.StoreCA)
	l.Signer = cmp.Or(l.Signer, r.HostSigner)
}

func appendNew(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// locations returns those of the server that answers, followed by those of all others that are
// alive.
func (s *service) locations(r records.Reader, asked *http.Request) locations {
	own := schema.Reach{URLs: s.servers(asked), StoreURLs: s.endpoints(asked), StoreCA: string(s.CA())}
	if s.Pin != nil {
		own.Pin = s.Pin()
	}
	if a := s.Signer(); a != nil {
		own.HostSigner = a.KeyID()
	}
	var l locations
	l.add(own)
	for server := range schema.Servers.All(r) {
		l.add(server.Reach)
	}
	return l
}

const (
	// mostServers bounds the servers that a host remembers, those that are gone included: one of
	// them may be back before the others.
	mostServers = 16
	// locateEvery is the interval between looks at whether the store answers, and locateTimeout the
	// time it has to.
	locateEvery, locateTimeout = 5 * time.Second, 3 * time.Second
)

// Locator keeps the addresses of servers and store in a host's state directory current: by the
// servers' records in the store and, while that cannot be reached, by asking the servers. It is a
// task, ready when it runs.
type Locator struct {
	task.Part
	dir   string
	store store.Store
	moved func(endpoints []string)
	renew func()
	log   *slog.Logger

	untrusted atomic.Pointer[string]

	mu sync.Mutex // held while the files change
}

// Untrusted returns, while the store does not answer, why this host trusts none of the servers that
// do, or "".
func (l *Locator) Untrusted() string {
	if why := l.untrusted.Load(); why != nil {
		return *why
	}
	return ""
}

// NewLocator returns the task for the credentials in a state directory. moved is called after the
// store's addresses have changed there, and renew after the authority that signs certificates has.
// Connections find changed authorities of the store's servers in their file.
func NewLocator(stateDir string, st store.Store, moved func(endpoints []string), renew func(), log *slog.Logger) *Locator {
	return &Locator{Part: task.NewPart("addresses of servers"), dir: stateDir, store: st, moved: moved, renew: renew, log: log}
}

// Run works until ctx ends.
func (l *Locator) Run(ctx context.Context) error {
	l.BeReady()
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { l.follow(ctx) })
	l.ask(ctx)
	return nil
}

// follow applies the servers' records until ctx ends.
func (l *Locator) follow(ctx context.Context) {
	servers := map[string]schema.Reach{}
	f := follow.New(follow.Options{Store: l.store, Prefixes: []string{schema.ServersPrefix}, Log: slog.New(slog.DiscardHandler)}) // others log that the store is away
	_ = f.Run(ctx, func(_ context.Context, u follow.Update) {                                                                     // it ends with ctx alone
		if u.Full {
			clear(servers)
		}
		for _, kv := range u.All {
			setServer(servers, kv.Key, kv.Value)
		}
		for _, e := range u.Events {
			if delete(servers, e.Key); !e.Deleted {
				setServer(servers, e.Key, e.Value)
			}
		}
		var found locations
		for _, key := range slices.Sorted(maps.Keys(servers)) {
			found.add(servers[key])
		}
		l.apply(found)
	})
}

// setServer takes in the record of a server. One that cannot be read is as good as none.
func setServer(servers map[string]schema.Reach, key string, value []byte) {
	var s schema.Server
	if json.Unmarshal(value, &s) == nil {
		servers[key] = s.Reach
	}
}

// ask asks the servers while the store does not answer, until ctx ends.
func (l *Locator) ask(ctx context.Context) {
	backoff, said := task.Backoff{Least: locateEvery, Most: mostPause, Spread: true}, ""
	for pause := locateEvery; task.Pause(ctx, pause); {
		if l.storeAnswers(ctx) {
			backoff.Reset()
			pause, said = locateEvery, ""
			l.untrusted.Store(nil)
			continue
		}
		pause = backoff.Next()
		err := l.askServers(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if text := err.Error(); text != said {
			l.log.Warn("the store cannot be reached, and no server says where it is; will ask again", "err", err)
			said = text
		}
	}
}

// askServers has a server say where the store is.
func (l *Locator) askServers(ctx context.Context) error {
	answer, err := askRenewal(ctx, l.dir)
	if err == nil {
		l.apply(answer.locations)
	}
	l.untrusted.Store(nil)
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		why := err.Error()
		l.untrusted.Store(&why)
	}
	return err
}

// storeAnswers reports whether the store can be reached, also if it refuses this host.
func (l *Locator) storeAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	_, err := l.store.Revision(ctx)
	return !errors.Is(err, store.ErrUnavailable)
}

// apply writes what has changed into the state directory. What is empty stays as it was: when all
// servers are gone, they will be back where they were.
func (l *Locator) apply(found locations) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, err := Load(l.dir)
	if err != nil {
		l.log.Warn("cannot record the addresses of servers", "err", err)
		return
	}
	ca, err := os.ReadFile(before.CAFile)
	if err != nil {
		l.log.Warn("cannot record the addresses of servers", "err", err)
		return
	}
	now := before
	now.Servers = remember(found.Servers, before.Servers)
	now.Pins = remember(found.Pins, before.Pins)
	if len(found.Endpoints) > 0 {
		now.Endpoints = found.Endpoints
	}
	now.Signer = cmp.Or(found.Signer, before.Signer)
	otherCA := found.CA != "" && found.CA != string(ca)
	otherEndpoints := !slices.Equal(now.Endpoints, before.Endpoints)
	if !otherCA && !otherEndpoints && slices.Equal(now.Servers, before.Servers) && slices.Equal(now.Pins, before.Pins) && now.Signer == before.Signer {
		return
	}
	if otherCA {
		err = api.WriteFile(before.CAFile, []byte(found.CA))
	}
	if err == nil {
		err = writeCredentials(l.dir, now)
	}
	if err != nil {
		l.log.Warn("cannot record the addresses of servers; will try again when they change", "err", err)
		return
	}
	l.log.Info("servers or store have other addresses or authorities", "servers", now.Servers, "store", now.Endpoints)
	if otherEndpoints {
		l.moved(now.Endpoints)
	}
	if now.Signer != before.Signer {
		l.renew()
	}
}

// remember returns what is there now, followed by what was known before.
func remember(now, before []string) []string {
	all := appendNew(slices.Clone(now), before...)
	return all[:min(len(all), max(mostServers, len(now)))]
}

// writeCredentials writes what is not a key or certificate.
func writeCredentials(dir string, c Credentials) error {
	about, err := c.encode()
	if err != nil {
		return err
	}
	return api.WriteFile(filepath.Join(dir, hostFile), about)
}

// pins returns all fingerprints by which the API's servers are known.
func (c Credentials) pins() []string {
	if c.Pin == "" {
		return c.Pins
	}
	return appendNew([]string{c.Pin}, c.Pins...)
}

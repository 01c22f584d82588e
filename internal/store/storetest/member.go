package storetest

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/embed"

	"heddle/internal/store/backend"
)

// memberVariable holds a member's arguments; memberReady is printed once it works.
const (
	memberVariable = "HEDDLE_STORETEST_MEMBER"
	memberReady    = "ready"
)

const clientPort, peerPort = 2379, 2380

// memberArguments are the arguments of a member's process.
type memberArguments struct {
	number    int
	dir       string
	addresses [Members]string
}

func (a memberArguments) String() string {
	return fmt.Sprintf("%d %s %s", a.number, a.dir, strings.Join(a.addresses[:], " "))
}

func parseMember(text string) (a memberArguments, err error) {
	_, err = fmt.Sscan(text, &a.number, &a.dir, &a.addresses[0], &a.addresses[1], &a.addresses[2])
	return a, err
}

// BeMember makes this process a member if it was started as one, and then never returns. Call it
// first in TestMain.
func BeMember() {
	text := os.Getenv(memberVariable)
	if text == "" {
		return
	}
	go EndWithParent()
	a, err := parseMember(text)
	if err == nil {
		err = a.run()
	}
	fmt.Fprintln(os.Stderr, "member of the etcd cluster:", err)
	os.Exit(1)
}

// EndWithParent ends this process when its standard input, a pipe from the test's process, ends.
func EndWithParent() {
	io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// socket returns the path of a member's socket, which works from any network namespace.
func socket(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("m%d.sock", number))
}

// run returns when the member has failed.
func (a memberArguments) run() error {
	local := socket(a.dir, a.number)
	if err := os.Remove(local); err != nil && !os.IsNotExist(err) {
		return err
	}
	e, err := embed.StartEtcd(a.config(local))
	if err != nil {
		return err
	}
	<-e.Server.ReadyNotify()
	fmt.Println(memberReady)
	return <-e.Err()
}

func (a memberArguments) config(local string) *embed.Config {
	c := embed.NewConfig()
	c.Name = fmt.Sprintf("m%d", a.number)
	c.Dir = filepath.Join(a.dir, c.Name)
	c.LogLevel, c.LogOutputs = "fatal", []string{"stderr"}
	// Long, so that a member without a processor for seconds does not count as dead. etcd's limit
	// on a request follows: 5 s and twice an election.
	c.TickMs, c.ElectionMs = 100, 2000
	// Safe, since a killed process loses nothing that it wrote.
	c.UnsafeNoFsync = true
	c.MaxTxnOps, c.MaxRequestBytes = backend.MaxTxnOps, backend.MaxRequestBytes
	c.AdvertiseClientUrls = []url.URL{a.at(a.number, clientPort)}
	c.ListenClientUrls = append([]url.URL{{Scheme: "unixs", Path: local}}, c.AdvertiseClientUrls...)
	c.ListenPeerUrls = []url.URL{a.at(a.number, peerPort)}
	c.AdvertisePeerUrls = c.ListenPeerUrls
	var all []string
	for i := range a.addresses {
		u := a.at(i, peerPort)
		all = append(all, fmt.Sprintf("m%d=%s", i, u.String()))
	}
	c.InitialCluster = strings.Join(all, ",")
	c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = filepath.Join(a.dir, "member.crt"), filepath.Join(a.dir, "member.key")
	c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = filepath.Join(a.dir, "ca.crt"), true
	c.PeerTLSInfo = c.ClientTLSInfo
	return c
}

func (a memberArguments) at(number, port int) url.URL {
	return url.URL{Scheme: "https", Host: fmt.Sprintf("%s:%d", a.addresses[number], port)}
}

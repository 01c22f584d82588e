package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"heddle/internal/netlab"
)

// Bird is a running BIRD, a router outside that speaks BGP.
type Bird struct {
	cmd     *exec.Cmd
	control string // its socket
}

// StartBird starts BIRD in a namespace. Its configuration, socket and log are in dir.
func StartBird(ns *netlab.Namespace, dir, config string) (*Bird, error) {
	if err := os.WriteFile(filepath.Join(dir, "bird.conf"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "bird.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b := &Bird{control: filepath.Join(dir, "bird.ctl")}
	b.cmd = exec.Command("bird", "-f", "-c", filepath.Join(dir, "bird.conf"), "-s", b.control)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	return b, ns.Start(b.cmd)
}

// Stop ends BIRD.
func (b *Bird) Stop() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait() // it was killed
}

// birdTimeout bounds a command to BIRD.
const birdTimeout = 10 * time.Second

// Do gives BIRD a command by its socket, and returns the lines of the answer, with their codes
// (BIRD's User's Guide, "Remote control"). It fails while BIRD does not listen yet.
func (b *Bird) Do(ctx context.Context, command string) (string, error) {
	conn, err := (&net.Dialer{Timeout: birdTimeout}).DialContext(ctx, "unix", b.control)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(birdTimeout)); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(conn)
	if _, err := birdAnswer(lines); err != nil { // the greeting
		return "", err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	answer, err := birdAnswer(lines)
	if err != nil {
		return "", fmt.Errorf("BIRD: %s: %w", command, err)
	}
	return answer, nil
}

// birdAnswer reads an answer: its last line has a code of four digits and a space. Codes from 8000
// on are errors.
func birdAnswer(lines *bufio.Scanner) (string, error) {
	var all strings.Builder
	for lines.Scan() {
		line := lines.Text()
		all.WriteString(line + "\n")
		if len(line) < 5 || line[0] == ' ' || line[4] != ' ' {
			continue
		}
		if line[0] >= '8' {
			return "", fmt.Errorf("refused: %s", line)
		}
		return all.String(), nil
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("the answer ends after %q", all.String())
}

// BGPSession is a session between a router of a tenant and a peer outside.
type BGPSession struct {
	AS       int    // the router's
	Peer     string // address
	PeerAS   int
	Password string
}

// SpeakBGP has a router speak BGP.
func (t *Tenant) SpeakBGP(ctx context.Context, router string, s BGPSession) error {
	peer, err := t.Create(ctx, "bgp_peer", map[string]any{"name": "peer", "peer_ip": s.Peer, "remote_as": s.PeerAS, "auth_type": "md5", "password": s.Password}, "bgp-peers")
	if err != nil {
		return err
	}
	speaker, err := t.Create(ctx, "bgp_speaker", map[string]any{"name": "speaker", "local_as": s.AS, "ip_version": 4, "logical_router": router}, "bgp-speakers")
	if err != nil {
		return err
	}
	_, err = t.API.Put(ctx, t.API.ServiceURL("bgp-speakers", speaker, "add_bgp_peer"), map[string]any{"bgp_peer_id": peer}, nil,
		&gophercloud.RequestOpts{OkCodes: []int{200}})
	return err
}

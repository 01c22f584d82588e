package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/jointoken"
	"heddle/internal/store/backend"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// nonceFile, below the data directory, exists from the first attempt to join until the store is a
// member of the cluster.
const nonceFile = "cluster-join"

// Pauses between attempts to join, before they are spread by a half: at most 30 seconds then.
const leastPause, mostPause = time.Second, 20 * time.Second

// JoinOptions describe the server that joins.
type JoinOptions struct {
	Name    string // in the cluster
	PeerURL string // by which other members reach it
	DataDir string // made with mode 0700 if it does not exist
}

// Joining reports whether a server has begun to join a cluster and not finished.
func Joining(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, nonceFile))
	return err == nil
}

// Joined records that the store is a member of the cluster.
func Joined(dataDir string) error {
	if err := os.Remove(filepath.Join(dataDir, nonceFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Join has the servers that a token names admit this one. It puts the cluster's authority and
// clients' files into the data directory and returns the members, for [backend.Peer]. It can be
// repeated with the same token until [Joined].
func Join(ctx context.Context, token string, o JoinOptions) (members []string, err error) {
	t, err := jointoken.Parse(token, jointoken.ForServer)
	if err != nil {
		return nil, jointoken.Refusal(err.Error())
	}
	nonce, err := o.nonce()
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, server := range t.Servers {
		ask := joinRequest{Token: t.Secret, Name: o.Name, PeerURL: o.PeerURL, Nonce: nonce, Now: time.Now()}
		var answer joinAnswer
		err := jointoken.Post(ctx, server+"/v1/cluster/join", jointoken.Pinned(server, nil, t.Pin), false, http.StatusCreated, ask, &answer)
		if err == nil {
			return answer.Members, o.save(answer)
		}
		failures = append(failures, fmt.Errorf("join at %s: %w", server, err))
		if jointoken.Refused(err) {
			break // the others read the same store
		}
	}
	return nil, errors.Join(failures...)
}

// JoinRetrying joins as [Join] does with the token that the function returns, and tries again with
// growing pauses until it succeeds or ctx ends, with a line in the log each time. token is called
// for each attempt, since a refused one can be replaced.
func JoinRetrying(ctx context.Context, token func() (string, error), o JoinOptions, log *slog.Logger) (members []string, err error) {
	for backoff := (task.Backoff{Least: leastPause, Most: mostPause, Spread: true}); ; {
		text, err := token()
		if err == nil {
			members, err = Join(ctx, text, o)
		}
		if err == nil || ctx.Err() != nil {
			return members, err
		}
		pause := backoff.Next()
		log.Warn("cannot join the cluster yet; will try again", "after", pause.Round(time.Second), "err", err)
		telemetry.TellWaiting("a server of the cluster to join: " + err.Error())
		if !task.Pause(ctx, pause) {
			return nil, err
		}
	}
}

// nonce returns what identifies this machine's attempts to join; it is kept before it is used.
func (o JoinOptions) nonce() (string, error) {
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	file := filepath.Join(o.DataDir, nonceFile)
	raw, err := os.ReadFile(file)
	if nonce := strings.TrimSpace(string(raw)); err == nil && nonce != "" {
		return nonce, nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	nonce := rand.Text()
	return nonce, api.WriteFile(file, []byte(nonce+"\n"))
}

// save writes what a server needs before its first start.
func (o JoinOptions) save(answer joinAnswer) error {
	for name, text := range answer.Files {
		if name != filepath.Base(name) || name == "." || name == ".." {
			return fmt.Errorf("the server's answer has a file %q, which would not be in the data directory", name)
		}
		if err := api.WriteFile(filepath.Join(o.DataDir, name), []byte(text)); err != nil {
			return err
		}
	}
	return backend.SaveAuthority(o.DataDir, answer.AuthorityFiles)
}

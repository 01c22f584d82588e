package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/connectivity"
	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

const (
	allHosts = "all"
	// gatherAtOnce bounds the hosts whose bundles pass through the store at once.
	gatherAtOnce = 4
	// gatherTime bounds what a host's bundle takes.
	gatherTime = 3 * time.Minute
	// gatherPause is the pause between questions whether a bundle is there.
	gatherPause = time.Second
)

// gathered is a description of what hosts are to collect, and of where it goes.
type gathered struct {
	dir       string // "" is the present one
	hours     int
	anonymise bool
}

// gatherBundles writes the bundles of hosts that their agents collect.
func gatherBundles(cmd *cobra.Command, login *cloud.Config, names []string, g gathered) error {
	s, err := login.Login(cmd.Context())
	if err != nil {
		return err
	}
	hosts, err := hostsOfBundles(cmd.Context(), s, names)
	if err != nil {
		return err
	}
	files, errs := make([]string, len(hosts)), make([]error, len(hosts))
	var working errgroup.Group
	working.SetLimit(gatherAtOnce)
	for i, h := range hosts {
		working.Go(func() error {
			files[i], errs[i] = g.fetch(cmd.Context(), s, h)
			return nil
		})
	}
	_ = working.Wait() // errs has the errors
	failed := 0
	for i, h := range hosts {
		if errs[i] != nil {
			failed++
			terminal.Fprintf(cmd.ErrOrStderr(), "host %s: no bundle: %v\n", h.Name, errs[i])
			continue
		}
		terminal.Fprintln(cmd.OutOrStdout(), files[i])
	}
	if failed > 0 {
		return &command.Exit{Code: 1, Text: fmt.Sprintf("%d of %d hosts have given no bundle", failed, len(hosts))}
	}
	return nil
}

// hostsOfBundles returns the hosts with names, or all that have virtual networks.
func hostsOfBundles(ctx context.Context, s *cloud.Session, names []string) ([]connectivity.Host, error) {
	all, err := listHosts(ctx, s)
	if err != nil || !slices.Equal(names, []string{allHosts}) {
		return namedHosts(all, names)
	}
	all = slices.DeleteFunc(all, func(h connectivity.Host) bool { return h.Alive && !h.Overlay() })
	if len(all) == 0 {
		return nil, errors.New("no host with virtual networks has joined: see heddle host list")
	}
	return all, nil
}

// plainName matches names of hosts that can be part of a file's name.
var plainName = regexp.MustCompile(`^[\w][\w.-]*$`)

// fetch writes a host's bundle, and returns the name of the file. On error none is left.
func (g *gathered) fetch(ctx context.Context, s *cloud.Session, h connectivity.Host) (path string, err error) {
	if !plainName.MatchString(h.Name) {
		return "", errors.New("its name cannot be part of a file's name: run heddle support there")
	}
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	path = filepath.Join(g.dir, bundleName(h.Name, time.Now()))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(path) // the error says more
		}
	}()
	return path, copyBundle(ctx, s, file, map[string]any{"host": h.Name, "bundle": uuid.NewString(), "hours": g.hours, "anonymise": g.anonymise})
}

// copyBundle writes a bundle that is asked for with body.
func copyBundle(ctx context.Context, s *cloud.Session, w io.Writer, body map[string]any) error {
	var offset int64
	for {
		body["offset"] = offset
		var part flow.SupportAnswer
		if err := s.Operator(ctx, http.MethodPost, "/v1/support", body, &part); err != nil {
			return err
		}
		if part.Size == 0 { // it is being collected
			if !pause(ctx, gatherPause) {
				return fmt.Errorf("it was not there within %s", gatherTime)
			}
			continue
		}
		if _, err := w.Write(part.Part); err != nil {
			return err
		}
		offset += int64(len(part.Part))
		switch {
		case offset == part.Size:
			return nil
		case len(part.Part) == 0 || offset > part.Size || part.Size > maxBundle:
			return fmt.Errorf("%d of %d bytes: the host's agent says what cannot be", offset, part.Size)
		}
	}
}

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"heddle/internal/sealing"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
)

// secretsKeyFile is the file in the data directory that has the key with which servers seal what
// users give to their machines. All servers of a cloud need the same one.
const secretsKeyFile = "secrets.key"

func (c *serveConfig) secretsFile() string { return filepath.Join(c.data, secretsKeyFile) }

// missingKey returns what is wrong with the file of the key of machines' metadata; nil if nothing
// is, or this server serves no metadata.
func (s *server) missingKey() *schema.MissingKey {
	file := s.config.secretsFile()
	_, err := os.Stat(file)
	if s.control == nil || s.secrets != nil && !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	missing := &schema.MissingKey{File: file, Loaded: s.secrets != nil}
	store := backend.StoreDir(s.config.data)
	if _, err := os.Stat(store); errors.Is(err, os.ErrNotExist) && len(s.config.etcd.Endpoints) == 0 {
		missing.LostStore = store
	}
	return missing
}

// secretsKey returns the key of machines' metadata. Only the first server makes one: where it was
// lost another would be no use, and the server goes on without, nil.
func (s *server) secretsKey(ctx context.Context) (*sealing.ServerKey, error) {
	file := s.config.secretsFile()
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		why, err := s.whyKeyIsElsewhere(ctx)
		if err != nil {
			return nil, err
		}
		if why != "" {
			s.log.Error("the key of machines' metadata is missing: metadata can be neither shown nor set by this server; "+
				"copy the file from the data directory of another server, or from a backup, chown it to the user that this server runs as, and start it again", "file", file, "because", why)
			return nil, nil
		}
	}
	return sealing.LoadServerKey(file)
}

// whyKeyIsElsewhere says why the key must have been made before; "" if it need not.
func (s *server) whyKeyIsElsewhere(ctx context.Context) (why string, err error) {
	sealed, _, err := s.store.List(ctx, strings.TrimSuffix(schema.PortMetadatas.Key("x"), "x"))
	if err != nil {
		return "", err
	}
	if len(sealed) > 0 {
		return "metadata is sealed with it", nil
	}
	if !s.config.cluster.on {
		return "", nil
	}
	members, err := s.store.Members(ctx)
	if err != nil {
		return "", err
	}
	if len(members) > 1 {
		return "the other servers of the cluster have it", nil
	}
	return "", nil
}

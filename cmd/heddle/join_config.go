package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// joinConfig holds how a host joins.
type joinConfig struct {
	token string // or
	file  string // with the token
	plain bool   // the token may travel over plain HTTP
}

// wanted reports whether a host that has not joined is to join: a token is given or, where no other
// setting names the store, awaited in the file.
func (j *joinConfig) wanted(namesStore bool) bool {
	if j.file == "" {
		return j.token != ""
	}
	_, err := os.Stat(j.file)
	return err == nil || !namesStore
}

// read returns the token given, or that in the file as it is now. The host's name is for errors.
func (j *joinConfig) read(host string) (string, error) {
	if j.file == "" {
		return j.token, nil
	}
	raw, err := os.ReadFile(j.file)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("--join-file %s: there is no such file, and this host has not joined: run `heddle host token %s` on the server and put its token there", j.file, host)
	} else if err != nil {
		return "", fmt.Errorf("--join-file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("--join-file %s: the file is empty: put a token of `heddle host token` into it", j.file)
	}
	return token, nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// SecretFile is a file with a key, password or token, and the setting that names it.
type SecretFile struct{ Setting, Path string }

// secretsCheck finds secret files of a server or agent that others than the owner can read.
func secretsCheck(who, dir string) Check {
	return Check{
		Name: "secrets in " + dir, For: who, Fix: "chmod 600 FILE, and chown it to the owner of " + dir + "; chmod go-w DIRECTORY: its writers can replace what is in it",
		Run: func(context.Context) error { return checkSecrets(dir) },
	}
}

// isSecret reports whether a file holds a key, password or token, by its name.
func isSecret(name string) bool {
	return strings.HasSuffix(name, ".key") || strings.Contains(name, "password") || slices.Contains([]string{"clouds.yaml", "openrc", "host.json"}, name)
}

func checkSecrets(dir string) error {
	top, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no such server or agent here
	} else if err != nil {
		return err
	}
	wrong, err := aboveFaults(dir, owner(top))
	if err != nil {
		return err
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			wrong = append(wrong, directoryFaults(path, info, owner(top))...)
		}
		if err != nil || !d.Type().IsRegular() || !isSecret(d.Name()) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		wrong = append(wrong, faults(path, info, owner(top))...)
		return nil
	})
	if len(wrong) > 0 {
		err = errors.Join(err, errors.New(strings.Join(wrong, "; ")))
	}
	return err
}

// aboveFaults returns how others than root and an owner may come to replace a directory by one of
// those above it.
func aboveFaults(dir string, owner uint32) (wrong []string, err error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	for err == nil && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		var info fs.FileInfo
		if info, err = os.Stat(path); err == nil && info.Mode()&fs.ModeSticky == 0 { // in a sticky one they may replace only what is theirs
			wrong = append(wrong, directoryFaults(path, info, owner)...)
		}
	}
	return wrong, err
}

// directoryFaults returns how others than root and an owner may write to a directory.
func directoryFaults(path string, info fs.FileInfo, of uint32) (wrong []string) {
	stat := info.Sys().(*syscall.Stat_t)
	if mode := info.Mode().Perm(); mode&0o002 != 0 || mode&0o020 != 0 && stat.Gid != 0 {
		wrong = append(wrong, fmt.Sprintf("others may write to the directory %s, which has mode %o and group %d", path, mode, stat.Gid))
	}
	if stat.Uid != 0 && stat.Uid != of {
		wrong = append(wrong, fmt.Sprintf("the directory %s belongs to user %d, want root or %d", path, stat.Uid, of))
	}
	return wrong
}

// faults returns how others than the owners may come to read a secret file.
func faults(path string, info fs.FileInfo, owners ...uint32) (wrong []string) {
	if info.Mode().Perm()&0o077 != 0 {
		wrong = append(wrong, fmt.Sprintf("%s has mode %o", path, info.Mode().Perm()))
	}
	if of := owner(info); !slices.Contains(owners, of) {
		wrong = append(wrong, fmt.Sprintf("%s belongs to user %d, want one of %d", path, of, owners))
	}
	return wrong
}

// owner returns the user id of a file's owner.
func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// secretFilesCheck finds files that the settings name, and credentials of Heddle in /etc, which
// others than root and the owner of the server's data can read.
func (root kernelFiles) secretFilesCheck(data string, settings func() ([]SecretFile, error)) Check {
	return Check{
		Name: "files with keys and passwords", For: "serve, agent, xapi, tunnel-controller, CNI, libvirt",
		Fix: "chmod 600 FILE, and chown it to the user of the unit that reads it: root or heddle",
		Run: func(context.Context) error {
			files, err := settings()
			if err != nil {
				return undecided{err.Error()}
			}
			credentials, err := filepath.Glob(filepath.Join(string(root), "etc/heddle/*clouds.yaml"))
			if err != nil {
				return err
			}
			for _, path := range credentials {
				if !slices.ContainsFunc(files, func(f SecretFile) bool { return f.Path == path }) {
					files = append(files, SecretFile{Path: path})
				}
			}
			return checkSecretFiles(files, data)
		},
	}
}

func checkSecretFiles(files []SecretFile, data string) error {
	owners := []uint32{0}
	if top, err := os.Stat(data); err == nil && owner(top) != 0 { // without it no server is here
		owners = append(owners, owner(top))
	}
	var wrong []string
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a token that was used, or what its command refuses by itself
		} else if err != nil {
			return undecided{err.Error()}
		}
		for _, fault := range faults(f.Path, info, owners...) {
			wrong = append(wrong, strings.TrimPrefix(f.Setting+": "+fault, ": "))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

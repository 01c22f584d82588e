package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"

	"heddle/internal/cli"
	"heddle/internal/command"
	"heddle/internal/sourceline"
	"heddle/internal/terminal"
)

// dropInDir is the directory of drop-ins, beside the configuration file.
const dropInDir = "conf.d"

// configuration holds the settings of a configuration file and its drop-ins. A setting of a later
// file replaces that of an earlier one, with all values of a list.
type configuration struct {
	files    []configFile
	sections map[string]configSection
}

type configFile struct {
	path string // as it is safe to print
	text []byte
}

type configSection struct {
	file     int // the index of the first file that has the section
	settings map[string]setting
}

// setting is the value of a key: a scalar is one value, a list several.
type setting struct {
	file   int // its index
	values []string
	bad    bool // it is no value and no list of values, but has keys of its own, or nothing
}

// configPaths returns the configuration file at path and its drop-ins, in the order in which they
// are read. Files that editors and packages leave beside those that they change have other names:
// hidden, or without .yaml at the end.
func configPaths(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	paths := []string{path}
	dir := filepath.Join(filepath.Dir(path), dropInDir)
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return paths, fmt.Errorf("configuration: %w", explainDenial(err, dir, settingsDirMode))
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".yaml") && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// readConfiguration reads the configuration file at path and its drop-ins, for the command top. The
// path "" is no file.
func readConfiguration(path string, top *cobra.Command) (configuration, error) {
	c := configuration{sections: map[string]configSection{}}
	paths, err := configPaths(path)
	if err != nil {
		return c, err
	}
	for _, p := range paths {
		if err := c.read(p, top); err != nil {
			return c, err
		}
	}
	return c, nil
}

// read adds the settings of a file. Of a file that is wrong in parts it returns the first error,
// and adds the rest.
func (c *configuration) read(path string, top *cobra.Command) error {
	text, err := readConfigFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", explainDenial(err, path, settingsMode))
	}
	path = terminal.Escape(path)
	var document any
	if err := yaml.UnmarshalStrict(text, &document); err != nil {
		return fmt.Errorf("%s: want sections named after commands, with settings below them: %s", path, strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	all, sections := document.(map[string]any)
	if !sections && document != nil {
		return fmt.Errorf("%s: want sections named after commands, with settings below them, not a list or a value alone", path)
	}
	if !isOneDocument(text) {
		return fmt.Errorf("%s: want one YAML document: what follows its end, such as a second line ---, would not be read", path)
	}
	at := len(c.files)
	c.files = append(c.files, configFile{path, text})
	var failed error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		below := all[name]
		settings, isSection := below.(map[string]any)
		if !isSection && below != nil {
			failed = cmp.Or(failed, fmt.Errorf("%s: want settings below it, such as `data: /var/lib/heddle`, not %v", c.files[at].place(name), below))
			continue
		}
		if cmd, _, err := top.Root().Find([]string{name}); top.HasParent() && (err != nil || cmd.Name() != name) {
			failed = cmp.Or(failed, noSection(c.files[at], name, top.Root()))
		}
		section, known := c.sections[name]
		if !known {
			section = configSection{at, map[string]setting{}}
			c.sections[name] = section
		}
		for key, value := range settings {
			section.settings[key] = newSetting(at, value)
		}
	}
	return failed
}

// mostSettings bounds a file of settings, bytes.
const mostSettings = 1 << 20

// readConfigFile reads a file of settings. It waits for no writer of a pipe.
func readConfigFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: want a file, not a directory, pipe or device", path)
	case info.Size() > mostSettings:
		return nil, fmt.Errorf("%s has %d bytes: want %d at most", path, info.Size(), mostSettings)
	}
	return io.ReadAll(io.LimitReader(f, mostSettings))
}

// serverUser is the user, and its group, of the units of servers, which do not run as root.
const serverUser = "heddle"

// The modes of settings that root and serverUser can read.
const settingsMode, settingsDirMode = 0o640, 0o750

// explainDenial adds to an error of reading settings at a path, if it is one of missing rights, how
// to give them to serverUser.
func explainDenial(err error, path string, mode int) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: let the unit's user read it: chgrp %[2]s %[3]s; chmod %[4]o %[3]s", err, serverUser, path, mode)
}

// checkServerReads returns an error that names the configuration files, and their directories, that
// serverUser cannot read though a unit of that user does: such a unit does not start. It finds
// nothing where there is no such user.
func (c configuration) checkServerReads() error {
	served := slices.ContainsFunc([]string{"serve", "xapi", "tunnel-controller"}, func(section string) bool {
		_, found := c.sections[section]
		return found
	})
	account, err := user.Lookup(serverUser)
	if err != nil || !served {
		return nil
	}
	return c.checkReads(account)
}

// checkReads returns an error that names the files and directories whose modes keep a user out.
func (c configuration) checkReads(account *user.User) error {
	groups, err := account.GroupIds()
	if err != nil {
		return fmt.Errorf("groups of user %s: %w", account.Username, err)
	}
	dir := filepath.Dir(c.files[0].path)
	wanted := map[string]fs.FileMode{dir: 0o1, filepath.Join(dir, dropInDir): 0o5}
	for _, f := range c.files {
		wanted[f.path] = 0o4
	}
	var denied []error
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no drop-ins
		} else if err != nil {
			return err
		}
		if granted(info, account.Uid, groups)&wanted[path] != wanted[path] {
			mode := settingsMode
			if info.IsDir() {
				mode = settingsDirMode
			}
			denied = append(denied, explainDenial(fmt.Errorf("user %s cannot read %s: %w", account.Username, path, fs.ErrPermission), path, mode))
		}
	}
	return errors.Join(denied...)
}

// granted returns the rights that a file's mode gives to a user of these groups: read 4, write 2,
// execute 1.
func granted(info fs.FileInfo, uid string, groups []string) fs.FileMode {
	at, mode := info.Sys().(*syscall.Stat_t), info.Mode().Perm()
	switch {
	case fmt.Sprint(at.Uid) == uid:
		return mode >> 6
	case slices.Contains(groups, fmt.Sprint(at.Gid)):
		return mode >> 3 & 0o7
	}
	return mode & 0o7
}

// writersCheck finds users who can change the settings of what runs as root.
func writersCheck(path string) cli.Check {
	return cli.Check{Name: "who may write settings", For: "serve, agent, xapi, tunnel-controller", Fix: "chown root FILE; chmod go-w FILE",
		Run: func(context.Context) error { return checkWriters(path) }}
}

// checkWriters returns an error that names the configuration files, and the directory of drop-ins,
// that others than root and this user may write.
func checkWriters(path string) error {
	paths, err := configPaths(path)
	if err != nil || path == "" {
		return err
	}
	var wrong []error
	for _, p := range append(paths, filepath.Join(filepath.Dir(path), dropInDir)) {
		info, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		at := info.Sys().(*syscall.Stat_t)
		switch mode := info.Mode().Perm(); {
		case at.Uid != 0 && int(at.Uid) != os.Geteuid():
			wrong = append(wrong, fmt.Errorf("%s belongs to user %d, who could so change what root runs: chown root %s", p, at.Uid, p))
		case mode&0o002 != 0:
			wrong = append(wrong, fmt.Errorf("%s has mode %o: any user could so change what root runs: chmod go-w %s", p, mode, p))
		case mode&0o020 != 0 && at.Gid != 0:
			wrong = append(wrong, fmt.Errorf("%s has mode %o: group %d could so change what root runs: chmod g-w %s", p, mode, at.Gid, p))
		}
	}
	return errors.Join(wrong...)
}

// newSetting returns the setting of a value in a file.
func newSetting(file int, value any) setting {
	s := setting{file: file}
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			s.values = append(s.values, fmt.Sprint(item))
			s.bad = s.bad || !isScalar(item)
		}
	case map[string]any, nil:
		s.bad = true
	default:
		s.values = []string{fmt.Sprint(value)}
	}
	return s
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any, nil:
		return false
	}
	return true
}

// isOneDocument reports whether nothing follows the first document of a text.
func isOneDocument(text []byte) bool {
	documents := goyaml.NewDecoder(bytes.NewReader(text))
	var n goyaml.Node
	if errors.Is(documents.Decode(&n), io.EOF) {
		return true
	}
	return errors.Is(documents.Decode(&n), io.EOF)
}

// place returns the place of a setting that is in force, for messages.
func (c configuration) place(section, key string) string {
	return c.files[c.sections[section].settings[key].file].place(section, key)
}

// place returns the place of a section, or of a key in it, for messages: file, line and names.
func (f configFile) place(names ...string) string {
	at := strings.Join(names, ".")
	return sourceline.Prefix(f.path, f.text, at) + ": " + at
}

// checkValues returns an error if a setting of a section has no value.
func (c configuration) checkValues(section string) error {
	for _, key := range slices.Sorted(maps.Keys(c.sections[section].settings)) {
		if c.sections[section].settings[key].bad {
			return fmt.Errorf("%s: %w", c.place(section, key), errNoValue)
		}
	}
	return nil
}

var errNoValue = errors.New("want a value or a list of values")

func noSection(in configFile, name string, root *cobra.Command) error {
	meant := cmp.Or(command.DidYouMean("", name, subcommands(root)), ": want the name of a command, as `heddle --help` lists them")
	return fmt.Errorf("%s: no such section%s", in.place(name), meant)
}

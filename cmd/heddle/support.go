package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/cli"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/supportbundle"
	"heddle/internal/telemetry"
)

// supportSettings returns the path of this machine's settings, "" if it has none, and the secrets
// in them: values, contents of files that they name, and variables.
func supportSettings(cmd *cobra.Command) (path string, secrets []string) {
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if flag, ours := strings.CutPrefix(name, "HEDDLE_"); ours && telemetry.Secret(strings.ToLower(strings.ReplaceAll(flag, "_", "-"))) {
			secrets = append(secrets, value)
		}
	}
	path = configPath(cmd)
	if _, err := os.Stat(path); err != nil {
		return "", secrets
	}
	// Values that a later file replaces are secrets, too, and one file that is wrong must not hide
	// those of others: heddle config show says what is wrong.
	paths, _ := configPaths(path)
	for _, p := range paths {
		c := configuration{sections: map[string]configSection{}}
		_ = c.read(p, newRoot())
		for _, section := range c.sections {
			for key, s := range section.settings {
				secrets = append(secrets, secretsOf(key, s.values)...)
			}
		}
	}
	return path, secrets
}

// supportBundles returns what makes the command that writes a support bundle of this host into a
// file.
func supportBundles(c *agentConfig) supportbundle.Command {
	return func(ctx context.Context, file string, hours int, anonymise bool) (*exec.Cmd, error) {
		args := []string{"support", "--output-file", file, "--hours", strconv.Itoa(hours), "--anonymise=" + strconv.FormatBool(anonymise),
			"--state", c.state, "--run-dir", c.admin.dir}
		if c.configFile != "" {
			args = append(args, "--config", c.configFile)
		}
		program, err := os.Executable()
		return exec.CommandContext(ctx, program, args...), err
	}
}

// secretsOf returns the secrets of a setting.
func secretsOf(key string, values []string) (secrets []string) {
	if telemetry.Secret(key) {
		return values
	}
	if namesCredentials(key) {
		for _, text := range contents(values) {
			secrets = append(secrets, cli.SecretsOfCredentials(text)...)
		}
		return secrets
	}
	if of, isFile := strings.CutSuffix(key, "-file"); !isFile || !telemetry.Secret(of) {
		for _, v := range values {
			secrets = append(secrets, telemetry.URLSecrets(v)...)
		}
		return secrets
	}
	for _, text := range contents(values) {
		secrets = append(secrets, strings.Fields(text)...)
	}
	return secrets
}

// contents returns the texts of the files that can be read: what others hold is not collected.
func contents(paths []string) (texts []string) {
	for _, path := range paths {
		if raw, err := os.ReadFile(path); err == nil {
			texts = append(texts, string(raw))
		}
	}
	return texts
}

// secretFiles returns the files with secrets that this machine's settings name, and those of the
// settings themselves that have some; none without settings.
func secretFiles(cmd *cobra.Command) (files []cli.SecretFile, err error) {
	path := configPath(cmd)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	root := newRoot()
	c, err := readConfiguration(path, root)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.sections)) {
		top, _, err := root.Find([]string{name})
		if err != nil {
			continue // heddle config check says what is wrong with it
		}
		settings := c.sections[name].settings
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			f := findFlag(top, key)
			switch {
			case f == nil:
			case namesSecretFile(f):
				for _, path := range settings[key].values {
					files = append(files, cli.SecretFile{Setting: name + "." + key, Path: path})
				}
			case len(secretsOf(key, settings[key].values)) > 0:
				files = append(files, cli.SecretFile{Setting: name + "." + key, Path: c.files[settings[key].file].path})
			}
		}
	}
	return files, nil
}

// namesSecretFile reports whether a flag names a file with a private key, password, token or
// credentials. The key of --ssh-key is public.
func namesSecretFile(f *pflag.Flag) bool {
	of, isFile := strings.CutSuffix(f.Name, "-file")
	kind, _ := pflag.UnquoteUsage(f)
	return kind == "file" && (isFile && telemetry.Secret(of) || strings.HasSuffix(f.Name, "-key") && f.Name != "ssh-key" ||
		namesCredentials(f.Name))
}

// namesCredentials reports whether a setting names a file of the form of clouds.yaml.
func namesCredentials(key string) bool {
	return key == "clouds" || strings.HasSuffix(key, "-credentials")
}

// datapathMaps is the file of a support bundle with the sizes of the overlay's eBPF maps.
func datapathMaps() cli.Source {
	return cli.Source{Name: "kernel/maps.json", Read: func(ctx context.Context) ([]byte, error) {
		all, err := datapath.MapSummaries(ctx, "")
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(all, "", "  ")
	}}
}

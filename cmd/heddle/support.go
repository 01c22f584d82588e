package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/cli"
	"heddle/internal/overlay/datapath"
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
	file, err := readSections(path, newRoot())
	if err != nil {
		if _, err := os.Stat(path); err != nil {
			return "", secrets
		}
		return path, secrets // heddle config show says what is wrong with it
	}
	for _, settings := range file.sections {
		for key, values := range settings {
			secrets = append(secrets, secretsOf(key, values)...)
		}
	}
	return path, secrets
}

// secretsOf returns the secrets of a setting.
func secretsOf(key string, values []string) (secrets []string) {
	if telemetry.Secret(key) {
		return values
	}
	if of, isFile := strings.CutSuffix(key, "-file"); !isFile || !telemetry.Secret(of) {
		for _, v := range values {
			secrets = append(secrets, telemetry.URLSecrets(v)...)
		}
		return secrets
	}
	for _, path := range values {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // what cannot be read is not collected either
		}
		secrets = append(secrets, strings.Fields(string(raw))...)
	}
	return secrets
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

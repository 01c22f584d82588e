package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// metadataCommand manages what the metadata service tells machines beside what Heddle knows itself.
func metadataCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metadata",
		Short: "Give hostname, keys, password and user data to machines",
		Long: `Manages what machines read from the metadata service at 169.254.169.254 beside what Heddle knows of their ports, with cloud-init or by hand.
A machine is named by a port, or by the device that its ports have ("heddle port set PORT --device ID"). Any project can give its
ports any device: those of the login's project count, or of the one named with --project.`,
	}
	login := cloudFlags(cmd)
	cmd.AddCommand(setMetadataCommand(login), showMetadataCommand(login), unsetMetadataCommand(login))
	return cmd
}

// machineFlags name a machine.
type machineFlags struct {
	login                 *cloud.Config
	port, device, project string
}

func addMachineFlags(cmd *cobra.Command, login *cloud.Config) *machineFlags {
	m := &machineFlags{login: login}
	f := cmd.Flags()
	f.StringVar(&m.port, "port", "", "`port` of the machine, by id or name")
	f.StringVar(&m.device, "device", "", "device `id` that the ports of the machine have")
	f.StringVar(&m.project, "project", "", "project `id` of the ports with --device; default: the login's project")
	for _, name := range []string{"port", "device", "project"} {
		perCall(f, name)
	}
	cmd.MarkFlagsMutuallyExclusive("port", "device")
	cmd.MarkFlagsMutuallyExclusive("port", "project")
	cmd.MarkFlagsOneRequired("port", "device")
	registerCompletion(cmd, "port", completeWorkloadPorts(login))
	cmd.Args = cobra.NoArgs
	return m
}

// ports logs in and returns the ids of the machine's ports.
func (m *machineFlags) ports(cmd *cobra.Command) (*cloud.Neutron, []string, error) {
	api, err := neutron(cmd, m.login)
	if err != nil {
		return nil, nil, err
	}
	if m.device == "" {
		id, err := api.Find(cmd.Context(), cloud.Port, m.port)
		return api, []string{id}, err
	}
	var found []cloud.Object
	if err := api.List(cmd.Context(), cloud.Port, url.Values{"device_id": {m.device}, "fields": {"id", "project_id"}}, &found); err != nil {
		return nil, nil, err
	}
	ids, others := portsByProject(found, cmp.Or(m.project, api.Project()))
	if len(ids) > 0 {
		return api, ids, nil
	}
	who, device := "this login's project", terminal.Escape(m.device)
	if m.project != "" {
		who = "project " + terminal.Escape(m.project)
	}
	if len(others) > 0 {
		return nil, nil, fmt.Errorf("%s has no port with the device %s; ports of other projects have it: give the id of the one that you mean with --project, or a port with --port: %s",
			who, device, strings.Join(others, ", "))
	}
	return nil, nil, fmt.Errorf("no port has the device %s: give it to one with `heddle port set PORT --device %[1]s`", device)
}

// portsByProject returns the ids of a project's ports, and the other projects that have ports. A
// project gives its ports any device it likes, also that of another one's machine: so only the
// caller can say whose machine is meant.
func portsByProject(ports []cloud.Object, project string) (ids, others []string) {
	for _, p := range ports {
		if of := p.Text("project_id"); of == project {
			ids = append(ids, p.ID())
		} else {
			others = append(others, of)
		}
	}
	slices.Sort(others)
	return ids, slices.Compact(others)
}

// each calls f for each port of the machine.
func (m *machineFlags) each(cmd *cobra.Command, f func(ctx context.Context, api *cloud.Neutron, port string) error) error {
	api, ids, err := m.ports(cmd)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := f(cmd.Context(), api, id); err != nil {
			return fmt.Errorf("port %s: %w", id, err)
		}
	}
	return nil
}

// maxMetadataFile bounds the files that are read, in bytes: more than the server takes, which says
// so itself.
const maxMetadataFile = 128 << 10

func setMetadataCommand(login *cloud.Config) *cobra.Command {
	var hostname, userData, hash string
	var keys []string
	cmd := &cobra.Command{
		Use:   "set {--port PORT | --device ID [--project ID]} [--hostname NAME] [--ssh-key FILE]… [--user-data FILE] [--password-hash HASH]",
		Short: "Set what a machine reads from the metadata service",
		Long: `Sets what is given and leaves the rest. cloud-init reads it when the machine boots for the first time.
The servers keep it encrypted, and the host of the machine alone can decrypt it; every process in the machine can read it.`,
	}
	m := addMachineFlags(cmd, login)
	f := cmd.Flags()
	f.StringVar(&hostname, "hostname", "", "`name` of the machine; default: the port's DNS name, or its name")
	f.StringArrayVar(&keys, "ssh-key", nil, "`file` with a public key that may log in, such as ~/.ssh/id_ed25519.pub; repeatable, all together replace those before")
	f.StringVar(&userData, "user-data", "", "`file` for cloud-init, plain or compressed by gzip, of at most 64 KiB")
	f.StringVar(&hash, "password-hash", "", "`hash` of the password for the console, as \"openssl passwd -6\" prints it")
	for _, name := range []string{"hostname", "ssh-key", "user-data", "password-hash"} {
		perCall(f, name)
	}
	cmd.MarkFlagsOneRequired("hostname", "ssh-key", "user-data", "password-hash")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		members := map[string]any{}
		if f.Changed("hostname") {
			members["hostname"] = hostname
		}
		if f.Changed("password-hash") {
			members["password_hash"] = hash
		}
		if f.Changed("user-data") {
			data, err := readMetadataFile("user-data", userData)
			if err != nil {
				return err
			}
			members["user_data"] = base64.StdEncoding.EncodeToString(data)
		}
		if f.Changed("ssh-key") {
			lines, err := readKeys(keys)
			if err != nil {
				return err
			}
			members["ssh_keys"] = lines
		}
		return m.each(cmd, func(ctx context.Context, api *cloud.Neutron, port string) error {
			return api.SetPortMetadata(ctx, port, members)
		})
	}
	return cmd
}

// readKeys returns the keys of files: each line that is neither empty nor a comment.
func readKeys(files []string) ([]string, error) {
	var keys []string
	for _, file := range files {
		content, err := readMetadataFile("ssh-key", file)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(content, []byte("PRIVATE KEY")) {
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--ssh-key %s: this is the private key, which stays secret: give the public one, %s.pub", file, file)}
		}
		before := len(keys)
		for line := range strings.Lines(string(content)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				keys = append(keys, line)
			}
		}
		if len(keys) == before {
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--ssh-key %s: the file has no key", file)}
		}
	}
	return keys, nil
}

func readMetadataFile(flag, name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--%s: %v", flag, err)}
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxMetadataFile+1))
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	if len(content) > maxMetadataFile {
		return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--%s %s: the file has more than %d bytes", flag, name, maxMetadataFile)}
	}
	return content, nil
}

// portMetadata is a port's metadata as the API answers it.
type portMetadata struct {
	Port        string   `json:"port"`
	Hostname    string   `json:"hostname,omitempty"`
	SSHKeys     []string `json:"ssh_keys"`
	HasPassword bool     `json:"has_password"`
	UserData    []byte   `json:"user_data,omitempty"`
}

func showMetadataCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show {--port PORT | --device ID [--project ID]}",
		Short: "Show what was set for a machine, by port",
		Long:  "Shows what was set for a machine, by port. With -o json also the user data, in base64. The password's hash is not shown to anyone.",
	}
	m := addMachineFlags(cmd, login)
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		shown := []portMetadata{}
		err := m.each(cmd, func(ctx context.Context, api *cloud.Neutron, port string) error {
			x := portMetadata{Port: port}
			if err := api.PortMetadata(ctx, port, &x); err != nil {
				return err
			}
			shown = append(shown, x)
			return nil
		})
		if err != nil {
			return err
		}
		return printMetadata(cmd.OutOrStdout(), *format, shown)
	}
	return cmd
}

func printMetadata(w io.Writer, format string, shown []portMetadata) error {
	var rows [][]string
	for _, m := range shown {
		password := "no"
		if m.HasPassword {
			password = "yes"
		}
		rows = append(rows, []string{m.Port, m.Hostname, fmt.Sprint(len(m.SSHKeys)), password, fmt.Sprintf("%d bytes", len(m.UserData))})
	}
	return command.PrintTable(w, format, shown, []string{"PORT", "HOSTNAME", "SSH KEYS", "PASSWORD", "USER DATA"}, rows)
}

func unsetMetadataCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unset {--port PORT | --device ID [--project ID]}",
		Short: "Remove all that was set for a machine",
	}
	m := addMachineFlags(cmd, login)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return m.each(cmd, func(ctx context.Context, api *cloud.Neutron, port string) error {
			return api.DeletePortMetadata(ctx, port)
		})
	}
	return cmd
}

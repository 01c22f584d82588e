package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"heddle/internal/store/backend"
	"heddle/internal/terminal"
)

// calicoRoot is the prefix of all keys of the data model.
const calicoRoot = "/calico/"

// calicoAccessCommand gives programs access to Calico's keys.
func calicoAccessCommand() *cobra.Command {
	var data, dir string
	var remove bool
	cmd := &cobra.Command{
		Use:   "access NAME {--dir DIRECTORY | --remove}",
		Short: "Let a program read and write Calico's keys in the embedded store, by TLS",
		Long: `Makes an etcd user that may read and write what lies below /calico/, and nothing else, in the embedded store of a heddle serve with
--agents-listen, and writes the certificate and key by which it is known into a directory: ca.crt, client.crt and client.key. Any
client of etcd v3 takes them. --remove takes the rights away; the certificate is worthless then. Run it on the server's machine.

Without --agents-listen there are no certificates: a server with --etcd-listen lets in all programs of its machine.`,
		Args: cobra.ExactArgs(1),
	}
	DataFlag(cmd.Flags(), &data, "data `directory` of heddle serve")
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` to write the files into; made when it is missing")
	cmd.Flags().BoolVar(&remove, "remove", false, "take the rights away")
	cmd.MarkFlagsOneRequired("dir", "remove")
	cmd.MarkFlagsMutuallyExclusive("dir", "remove")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		st, err := backend.OpenAuthority(cmd.Context(), data, nil)
		if err != nil {
			return err
		}
		defer st.Close()
		if remove {
			return st.RemoveProgram(cmd.Context(), args[0])
		}
		given, err := st.AllowProgram(cmd.Context(), args[0], calicoRoot)
		if err != nil {
			return err
		}
		return writeCredentials(cmd.OutOrStdout(), dir, given)
	}
	return cmd
}

func writeCredentials(w io.Writer, dir string, c backend.Credentials) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{"ca.crt", c.CA}, {"client.crt", c.Certificate}, {"client.key", c.Key}} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.content, 0o600); err != nil {
			return err
		}
		terminal.Fprintln(w, path)
	}
	return nil
}

// Command package makes Heddle's Debian packages and archives from binaries that were built before:
//
//	go -C scripts/package run . --version v0.1.0 --time 1700000000 amd64=../../dist/amd64/heddle
//
// The same binaries, version and time give the same bytes.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the packager of that name
	"github.com/goreleaser/nfpm/v2/files"
)

// release holds what is packaged.
type release struct {
	source  string // the source tree
	native  string // a heddle for this machine, which writes the manual
	version string // as git describe gives it
	time    time.Time
	out     string
}

// maintainer is whom Debian's tools name.
const maintainer = "Heddle maintainers <maintainers@heddle.example>"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var r release
	var seconds int64
	f := flag.NewFlagSet("package", flag.ContinueOnError)
	f.StringVar(&r.source, "source", "../..", "source tree")
	f.StringVar(&r.native, "native", "../../bin/heddle", "heddle for this machine, which writes the manual pages and completions")
	f.StringVar(&r.version, "version", "", "version, as git describe gives it")
	f.Int64Var(&seconds, "time", 0, "time of all files, in seconds since 1970")
	f.StringVar(&r.out, "out", "../../dist", "directory for the packages")
	if err := f.Parse(args); err != nil {
		return err
	}
	r.time = time.Unix(seconds, 0).UTC()
	if r.version == "" || f.NArg() == 0 {
		return errors.New("give --version, and ARCHITECTURE=BINARY for each package, such as amd64=dist/amd64/heddle")
	}
	var made []string
	for _, arg := range f.Args() {
		arch, binary, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%s: want ARCHITECTURE=BINARY", arg)
		}
		names, err := r.makePackages(arch, binary)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		made = append(made, names...)
	}
	return r.writeSums(made)
}

// makePackages makes the package and the archive of an architecture, and returns their names.
func (r *release) makePackages(arch, binary string) ([]string, error) {
	tree, err := os.MkdirTemp("", "heddle-package")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tree)
	if err := r.stage(tree, binary); err != nil {
		return nil, err
	}
	version, err := debianVersion(r.version, r.time)
	if err != nil {
		return nil, err
	}
	deb, archive := "heddle_"+version+"_"+arch+".deb", "heddle_"+version+"_linux_"+arch+".tar.gz"
	if err := r.write(deb, func(w io.Writer) error { return r.writeDeb(w, tree, version, arch) }); err != nil {
		return nil, err
	}
	if err := r.write(archive, func(w io.Writer) error { return r.writeArchive(w, tree) }); err != nil {
		return nil, err
	}
	return []string{deb, archive}, nil
}

// write writes a file in the output directory.
func (r *release) write(name string, fill func(io.Writer) error) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	return errors.Join(fill(file), file.Close())
}

// writeDeb writes the package of what stands in tree.
func (r *release) writeDeb(w io.Writer, tree, version, arch string) error {
	contents, err := r.contents(tree)
	if err != nil {
		return err
	}
	scripts := filepath.Join(r.source, "scripts", "package", "debian")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "heddle", Arch: arch, Platform: "linux", Version: version, VersionSchema: "none", MTime: r.time, DisableGlobbing: true,
		Section: "net", Priority: "optional", Maintainer: maintainer, License: "Apache-2.0",
		Description: "Virtual networks for Linux hosts\n" +
			"Heddle gives virtual machines, containers and hosts tenant networks,\nrouters, security groups, load balancers, DHCP and tunnels.\n" +
			"It speaks the APIs of OpenStack Neutron and Octavia, Calico's data model\nand XenAPI, and keeps all state in etcd, its own or a cluster.",
		Overridables: nfpm.Overridables{
			Depends:    []string{"adduser", "iproute2"},
			Recommends: []string{"dnsmasq-base", "haproxy", "openvswitch-switch"},
			Suggests:   []string{"bash-completion", "libvirt-daemon", "prometheus", "python3-openstackclient"},
			Contents:   contents,
			Scripts: nfpm.Scripts{PostInstall: filepath.Join(scripts, "postinst"), PreRemove: filepath.Join(scripts, "prerm"),
				PostRemove: filepath.Join(scripts, "postrm")},
			Deb: nfpm.Deb{Compression: "zstd"},
		},
	})
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	return packager.Package(info, w)
}

// contents lists what stands in tree. Directories of files come with these.
func (r *release) contents(tree string) (all files.Contents, err error) {
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if below, err := os.ReadDir(path); err != nil || len(below) > 0 {
				return err
			}
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		c := &files.Content{Source: path, Destination: strings.TrimPrefix(path, tree),
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: info.Mode().Perm(), MTime: r.time}}
		switch d.Type() {
		case fs.ModeDir:
			c.Type = files.TypeDir
		case fs.ModeSymlink:
			if c.Source, err = os.Readlink(path); err != nil {
				return err
			}
			c.Type = files.TypeSymlink
		}
		all = append(all, c)
		return nil
	})
	return all, err
}

// writeArchive writes what stands in tree, for systems without Debian's packages.
func (r *release) writeArchive(w io.Writer, tree string) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == tree {
			return err
		}
		return r.addToArchive(archive, tree, path, d)
	})
	return errors.Join(err, archive.Close(), compressed.Close())
}

func (r *release) addToArchive(archive *tar.Writer, tree, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	if d.Type()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name, header.ModTime = strings.TrimPrefix(path, tree+"/"), r.time
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "root", "root"
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}

// writeSums writes SHA256SUMS of the packages, as sha256sum does.
func (r *release) writeSums(names []string) error {
	return r.write("SHA256SUMS", func(w io.Writer) error {
		for _, name := range names {
			raw, err := os.ReadFile(filepath.Join(r.out, name))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(raw), name); err != nil {
				return err
			}
			fmt.Printf("%s  %.1f MB\n", filepath.Join(r.out, name), float64(len(raw))/1e6)
		}
		return nil
	})
}

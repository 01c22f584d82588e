package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	maxFile   = 20 << 20  // bytes of a file in a bundle
	maxBundle = 100 << 20 // bytes of all, before they are compressed
)

// writeBundle writes the sources, struck out, into a new tar.gz that its owner alone can read. All
// of them take the longest time at most, and each a third of it. A source that cannot be read is in
// the manifest with the reason. On error no file is left.
func writeBundle(ctx context.Context, longest time.Duration, path string, sources []Source, strike *strikeOut) (m *contents, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(path) // the error says more
		}
	}()
	zip := gzip.NewWriter(f)
	b := &bundle{tar: tar.NewWriter(zip), left: maxBundle, top: strings.TrimSuffix(filepath.Base(path), ".tar.gz"), m: &contents{Made: time.Now().UTC()}}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, s := range sources {
		if err := b.add(ctx, longest/3, s, strike); err != nil {
			return nil, err
		}
	}
	list, err := b.m.json()
	if err != nil {
		return nil, err
	}
	return b.m, errors.Join(b.write("manifest.json", list), b.tar.Close(), zip.Close())
}

// bundle is an archive that is written.
type bundle struct {
	tar  *tar.Writer
	left int    // bytes that it may still take
	top  string // directory in it
	m    *contents
}

// add reads a source into the bundle, in the longest time at most.
func (b *bundle) add(ctx context.Context, longest time.Duration, s Source, strike *strikeOut) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	text, err := s.Read(ctx)
	if err != nil {
		b.m.Files = append(b.m.Files, collected{Name: s.Name, Error: string(strike.apply([]byte(err.Error())))})
		return nil
	}
	if !strings.HasSuffix(s.Name, profile) { // profiles hold names of functions alone
		text = strike.apply(text)
	}
	most := min(maxFile, b.left)
	cut := len(text) >= most
	text = text[:min(len(text), most)]
	b.left -= len(text)
	b.m.Files = append(b.m.Files, collected{Name: s.Name, Bytes: len(text), Cut: cut})
	return b.write(s.Name, text)
}

func (b *bundle) write(name string, text []byte) error {
	err := b.tar.WriteHeader(&tar.Header{Name: b.top + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.m.Made})
	if err != nil {
		return err
	}
	_, err = b.tar.Write(text)
	return err
}

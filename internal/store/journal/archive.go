package journal

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Export writes the segments of the journal in a directory to out, as a tar archive, and returns
// their number. The journal may be written meanwhile: what is not whole yet is left out.
func Export(dir string, out io.Writer) (segments int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return 0, err
	}
	slices.Sort(files)
	archive := tar.NewWriter(out)
	for _, file := range files {
		err := exportSegment(archive, file)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has become too old meanwhile
		}
		if err != nil {
			return segments, fmt.Errorf("%s: %w", file, err)
		}
		segments++
	}
	return segments, archive.Close()
}

func exportSegment(archive *tar.Writer, file string) error {
	s, err := loadSegment(file, false)
	if err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(file), Size: s.size, Mode: 0o600, ModTime: s.until}
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(archive, in, s.size)
	return err
}

var exportedName = regexp.MustCompile(`^[0-9]{6}-[0-9]{19}\` + suffix + "$")

// Import makes a directory, which must not exist, with the segments that Export has written. It
// leaves nothing behind if one of them cannot be read.
func Import(in io.Reader, dir string) (segments int, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if err == io.EOF && segments > 0 {
			return segments, syncDir(dir)
		}
		if err != nil {
			return segments, err
		}
		if h.Typeflag != tar.TypeReg || !exportedName.MatchString(h.Name) {
			return segments, fmt.Errorf("%q is no segment of a journal", h.Name)
		}
		if err := importSegment(archive, filepath.Join(dir, h.Name)); err != nil {
			return segments, fmt.Errorf("%s: %w", h.Name, err)
		}
		segments++
	}
}

// importSegment writes a segment, and reads it as a whole.
func importSegment(in io.Reader, file string) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	s, err := loadSegment(file, true)
	if err == nil {
		err = s.lost
	}
	return err
}

package journal

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestArchive: a journal that is written meanwhile is exported as whole blocks, and reads as it did
// where it is imported. What is no journal leaves nothing behind.
func TestArchive(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.SegmentBytes = 1 })
	l.commit("/a/1=x", "/b/1=y")
	want := l.commit("/a/1=z")
	newest, err := filepath.Glob(filepath.Join(l.opts.Dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(newest[len(newest)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write([]byte{1, 2, 3}); err != nil || out.Close() != nil { // a block that is not whole
		t.Fatal(err)
	}
	var archive bytes.Buffer
	n, err := Export(l.opts.Dir, &archive)
	if err != nil || n != len(newest) {
		t.Fatalf("%d segments of %d: %v", n, len(newest), err)
	}
	l.stop()
	dir := filepath.Join(t.TempDir(), "journal")
	if got, err := Import(bytes.NewReader(archive.Bytes()), dir); err != nil || got != n {
		t.Fatalf("%d segments, want %d: %v", got, n, err)
	}
	all, lost, err := load(dir)
	if err != nil || len(lost) > 0 || len(all) != n || all[n-1].last != want || all[n-1].lost != nil {
		t.Errorf("imported %d segments up to revision %d, %v lost: %v", len(all), all[n-1].last, lost, err)
	}

	damaged := bytes.Clone(archive.Bytes())
	damaged[600]++
	for name, content := range map[string][]byte{"damaged": damaged, "cut": archive.Bytes()[:700], "elsewhere": tarOf(t, "../"+segmentName(1, 1)), "other": tarOf(t, "a.txt"), "empty": nil} {
		dir := filepath.Join(t.TempDir(), "journal")
		if _, err := Import(bytes.NewReader(content), dir); err == nil {
			t.Errorf("%s: imported", name)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s leaves a directory: %v", name, err)
		}
	}
}

func tarOf(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

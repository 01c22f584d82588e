package datapath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// MapSummary describes a pinned map without its contents.
type MapSummary struct {
	Datapath string `json:"host"`   // its name, which is that of the host
	Layout   string `json:"layout"` // version of what the maps mean
	Name     string `json:"map"`
	Type     string `json:"type"`
	// Entries is nil for maps in which all entries always exist, such as arrays.
	Entries  *int   `json:"entries,omitempty"`
	Capacity uint32 `json:"capacity"` // entries; bytes of a ring buffer
}

// MapSummaries describes the pinned maps of all datapaths of this machine, in a BPF file system,
// "" for the default. It needs the rights of an agent.
func MapSummaries(ctx context.Context, bpffs string) ([]MapSummary, error) {
	paths, err := filepath.Glob(filepath.Join(cmp.Or(bpffs, defaultBPFFS), "heddle", "*", "v*", "*"))
	if err != nil {
		return nil, err
	}
	all := []MapSummary{}
	for _, path := range paths {
		s, err := summarize(ctx, path)
		if errors.Is(err, os.ErrNotExist) {
			continue // the datapath has been removed, or the map replaced
		} else if err != nil {
			return nil, fmt.Errorf("map %s: %w", path, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// summarize describes a pinned map: BPFFS/heddle/NAME/LAYOUT/MAP.
func summarize(ctx context.Context, path string) (MapSummary, error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return MapSummary{}, err
	}
	defer m.Close()
	layout := filepath.Dir(path)
	s := MapSummary{Datapath: filepath.Base(filepath.Dir(layout)), Layout: filepath.Base(layout), Name: filepath.Base(path), Type: m.Type().String(), Capacity: m.MaxEntries()}
	if m.Type() != ebpf.Hash {
		return s, nil
	}
	n := min(batchSize, int(m.MaxEntries()))
	keys, _ := rows(n, int(m.KeySize()))
	values, _ := rows(n, int(m.ValueSize()))
	count := 0
	err = eachBatch(m, keys, values, func(got int) bool {
		count += got
		return ctx.Err() == nil
	})
	s.Entries = &count
	return s, errors.Join(err, ctx.Err())
}

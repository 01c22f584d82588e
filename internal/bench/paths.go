package bench

import (
	"context"
	"errors"
	"fmt"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// paths holds the paths that are compared: Heddle's on a stand, and the kernel's own.
type paths struct {
	*stand
	group    string      // of the workloads
	one, two netlab.Path // Heddle's on one host, and from one host to another
	baselines
}

// baselines are paths of the kernel alone.
type baselines struct{ direct, bridge, routed, vxlan, segmented netlab.Path }

// withPaths runs use on a stand whose paths carry packets.
func (b *bench) withPaths(ctx context.Context, use func(*paths) error) error {
	return b.withStand(ctx, func(s *stand) error {
		p := &paths{stand: s}
		var err error
		if p.group, err = s.openGroup(ctx); err != nil {
			return err
		}
		if _, p.one, p.two, err = s.pair(ctx, p.group); err != nil {
			return err
		}
		labs, err := p.baselines.build()
		defer func() {
			for _, l := range labs {
				_ = l.Close() // what is left goes with the next run's start
			}
		}()
		if err != nil {
			return err
		}
		return use(p)
	})
}

// build makes the kernel's paths, each in a lab, which has to be closed, after an error too.
func (k *baselines) build() (labs []*netlab.Lab, err error) {
	for i, build := range []struct {
		path *netlab.Path
		make func(*netlab.Lab) (netlab.Path, error)
	}{
		{&k.direct, netlab.DirectPath},
		{&k.bridge, netlab.BridgePath},
		{&k.routed, netlab.RoutedPath},
		{&k.vxlan, func(l *netlab.Lab) (netlab.Path, error) { return netlab.VXLANPath(l, false) }},
		{&k.segmented, func(l *netlab.Lab) (netlab.Path, error) { return netlab.VXLANPath(l, true) }},
	} {
		l := netlab.New(fmt.Sprintf("%s-k%d", prefix, i))
		labs = append(labs, l)
		if *build.path, err = build.make(l); err != nil {
			return labs, err
		}
	}
	return labs, nil
}

// pair makes two workloads on the first host and one on the second, and waits until packets pass.
func (s *stand) pair(ctx context.Context, group string) (w [3]*lab.Workload, one, two netlab.Path, err error) {
	for i, h := range []*lab.Host{s.h1, s.h1, s.h2} {
		if w[i], err = s.workload(ctx, fmt.Sprintf("a%d", 1+i), h, group); err != nil {
			return w, one, two, err
		}
	}
	one, err1 := path("Heddle, one host", w[0], w[1])
	two, err2 := path("Heddle, two hosts", w[0], w[2])
	if err := errors.Join(err1, err2); err != nil {
		return w, one, two, err
	}
	return w, one, two, warm(ctx, one, two)
}

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
)

// OtherPrograms returns the tcx programs of other software on an interface, in words.
func OtherPrograms(ns *hostnet.Namespace, ifindex int) (found []string, err error) {
	own, err := programNames()
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error {
		for _, hook := range []struct {
			name string
			at   ebpf.AttachType
		}{{"ingress", ebpf.AttachTCXIngress}, {"egress", ebpf.AttachTCXEgress}} {
			all, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: hook.at})
			if err != nil {
				return fmt.Errorf("programs at interface %d: %w", ifindex, err)
			}
			for _, p := range all.Programs {
				name, err := programName(p.ID)
				if err != nil {
					return err
				}
				if name != "" && !own[name] {
					found = append(found, fmt.Sprintf("tcx program %s at %s", name, hook.name))
				}
			}
		}
		return nil
	})
	return found, err
}

// programNames returns the names of our programs, as the kernel has them.
func programNames() (map[string]bool, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for name := range spec.Programs {
		names[name[:min(len(name), unix.BPF_OBJ_NAME_LEN-1)]] = true
	}
	return names, nil
}

// programName returns the name of a program; its number if it has none, and "" if it is gone.
func programName(id ebpf.ProgramID) (string, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("program %d: %w", id, err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", fmt.Errorf("program %d: %w", id, err)
	}
	if info.Name == "" {
		return fmt.Sprint(id), nil
	}
	return info.Name, nil
}

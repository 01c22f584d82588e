package client

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"heddle/calico"
)

// places are the one or two paths of a key. The left one wins, and only it is written.
type places struct {
	left, right string
	below       string // of a key that is a directory, the prefix of what lies below it
}

func placesOf(key calico.Key) (places, error) {
	left, err := key.Path()
	if err != nil {
		return places{}, invalid(key, left, err)
	}
	p := places{left: left}
	p.right, _ = calico.Alias(key)
	if key.Kind() == calico.KindIPAMHost {
		p.below = left + "/"
	}
	return p, nil
}

func (p places) paths() []string {
	if p.right == "" {
		return []string{p.left}
	}
	return []string{p.left, p.right}
}

// effective returns the object that counts of those found.
func (p places) effective(found map[string]*mvccpb.KeyValue) *mvccpb.KeyValue {
	if kv := found[p.left]; kv != nil || p.right == "" {
		return kv
	}
	return found[p.right]
}

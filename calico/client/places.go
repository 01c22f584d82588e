package client

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"heddle/calico"
)

// places are where the object of a key may lie. What is at the left one wins, and only there is written; the right one,
// of those keys that have two, is read.
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

// effective is what counts of what was found.
func (p places) effective(found map[string]*mvccpb.KeyValue) *mvccpb.KeyValue {
	if kv := found[p.left]; kv != nil || p.right == "" {
		return kv
	}
	return found[p.right]
}

// Package ipam assigns the addresses of Calico's pools to workloads (spec §11). Pools are divided
// into blocks of 64 addresses. A block is affine to the host that claimed it, which takes its
// addresses from there first, so that the fabric needs one route per block; a host with exhausted
// pools borrows from blocks of others, unless blocks are strict. A handle names all addresses of
// one owner.
//
// A block, the handles that count its addresses, and its affinity key change in one etcd
// transaction. docs/ipam.md states the invariant, and what cache and queues are for.
package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"heddle/calico"
	"heddle/calico/client"
)

// What a caller may decide by; errors name the object.
var (
	// ErrNoPool: no pool of the family, or none of those named, is enabled for IPAM.
	ErrNoPool = errors.New("no usable pool")
	// ErrUnknownPool: a named pool does not exist, or is of the other family.
	ErrUnknownPool = errors.New("not a usable pool")
	// ErrNotInPool: the address or CIDR is in no pool that is enabled for IPAM.
	ErrNotInPool = errors.New("not in an enabled pool")
	// ErrAssigned: the address is taken.
	ErrAssigned = errors.New("assigned already")
	// ErrNotAssigned: the address is free.
	ErrNotAssigned = errors.New("not assigned")
	// ErrUnknownHandle: no address carries the handle.
	ErrUnknownHandle = errors.New("unknown handle")
	// ErrStrict: the block belongs to another host and is strict.
	ErrStrict = errors.New("the block is strictly of another host")
	// ErrInvalidBlock: a block is inconsistent, or not of 64 addresses. [IPAM.Check] has details.
	ErrInvalidBlock = errors.New("invalid block")
	// ErrBlocksExist: the configuration cannot change while there are blocks.
	ErrBlocksExist = errors.New("blocks exist")
	// ErrConfig: the configuration is one that can never hand out an address.
	ErrConfig = errors.New("neither strict_affinity nor auto_allocate_blocks: hosts could only borrow, and from nobody")
	// ErrBusy: others kept changing the same objects. Nothing was done.
	ErrBusy = errors.New("others keep changing the same")
)

const (
	// maxAttempts bounds the attempts at a transaction while others change the same (spec 11.5).
	maxAttempts = 100
	// defaultOperations is below etcd's default for --max-txn-ops.
	defaultOperations = 120
	leastOperations   = 32
)

// Options of an IPAM. All may be left out.
type Options struct {
	// Host is the name of this host, for calls that name none; "" is that of the operating system.
	Host string
	// Operations bounds the operations of one transaction, at least 32; 0: 120, which every etcd
	// takes. Larger requests take several transactions.
	Operations int
	// Log gets what is found wrong in etcd and worked around; nil: nothing is logged.
	Log *slog.Logger
}

// IPAM assigns addresses. It is safe for concurrent use; a process should have one.
type IPAM struct {
	client     *client.Client
	host       string
	operations int
	log        *slog.Logger

	cache  *cache
	mu     sync.Mutex
	lines  map[line]*queue
	warned map[calico.Key]int64 // revisions of the objects that were logged
}

// New makes an IPAM. It does not talk to etcd yet.
func New(c *client.Client, o Options) (*IPAM, error) {
	if o.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name of this host: %w", err)
		}
		o.Host = host
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &IPAM{
		client:     c,
		host:       o.Host,
		operations: max(leastOperations, cmp.Or(o.Operations, defaultOperations)),
		log:        o.Log,
		cache:      newCache(),
		lines:      map[line]*queue{},
		warned:     map[calico.Key]int64{},
	}, nil
}

// warn logs what is wrong with an object, once for each of its revisions.
func (i *IPAM) warn(key calico.Key, revision int64, text string, err error) {
	i.mu.Lock()
	before, ok := i.warned[key]
	i.warned[key] = revision
	i.mu.Unlock()
	if ok && before == revision {
		return
	}
	path, _ := key.Path()
	i.log.Warn(text, "key", path, "err", err)
}

// family is 4 or 6.
type family int

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return 4
	}
	return 6
}

// bits returns the length of a block's prefix.
func (f family) bits() int {
	if f == 4 {
		return 26
	}
	return 122
}

func (f family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

// usable reports whether new addresses may come from a pool.
func usable(p *calico.Pool) bool {
	return p.IPAM && !p.Disabled && p.CIDR.Bits() <= familyOf(p.CIDR.Addr()).bits()
}

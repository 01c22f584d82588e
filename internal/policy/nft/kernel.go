package nft

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// socketRoom bounds a batch and its answers: the kernel's default refuses more than 200 KB.
const socketRoom = 64 << 20

// Kernel is the nftables of a network namespace, over netlink.
type Kernel struct {
	mu     sync.Mutex
	fd     int
	port   uint32 // the socket's address
	answer []byte // room for one datagram
	arp    *bool  // whether there are tables of family arp; nil: not tried yet
	events *os.File
}

// Open opens the nftables of the calling thread's network namespace. It needs CAP_NET_ADMIN there.
func Open() (*Kernel, error) {
	fd, port, err := openSocket(0)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	events, _, err := openSocket(unix.SOCK_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return &Kernel{fd: fd, port: port, answer: make([]byte, 1<<18), events: os.NewFile(uintptr(events), "nftables events")}, nil
}

func openSocket(flags int) (fd int, port uint32, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, 0, fmt.Errorf("open a netlink socket: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return 0, 0, fmt.Errorf("bind a netlink socket: %w", err)
	}
	for _, option := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketRoom); err != nil {
			unix.Close(fd)
			return 0, 0, fmt.Errorf("enlarge a netlink socket's buffer (this needs CAP_NET_ADMIN): %w", err)
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return 0, 0, fmt.Errorf("address of a netlink socket: %w", err)
	}
	return fd, name.(*unix.SockaddrNetlink).Pid, nil
}

// Close closes the connection. What was committed stays.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(unix.Close(k.fd), k.events.Close())
}

func (k *Kernel) send(b []byte) error {
	if err := unix.Sendto(k.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send %d bytes to the kernel: %w", len(b), err)
	}
	return nil
}

// receive reads one datagram, which is valid until the next.
func (k *Kernel) receive(flags int) ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(k.fd, k.answer, flags)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return k.answer[:n], nil
	}
}

// drain discards stale answers.
func (k *Kernel) drain() {
	for {
		if _, err := k.receive(unix.MSG_DONTWAIT); err != nil && err != unix.ENOBUFS {
			return
		}
	}
}

// commit encodes each batch while the kernel is at the one before.
func (k *Kernel) commit(ctx context.Context, batches ...batch) error {
	var now, next encoded
	if len(batches) > 0 {
		now = encode(batches[0])
	}
	for i, b := range batches {
		var encoding sync.WaitGroup
		if i+1 < len(batches) {
			encoding.Go(func() { next = encode(batches[i+1]) })
		}
		err := k.commitOne(ctx, b, now)
		encoding.Wait()
		if err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
		now = next
	}
	return nil
}

func (k *Kernel) commitOne(ctx context.Context, b batch, e encoded) error {
	if err := cmp.Or(ctx.Err(), e.err); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drain()
	if err := k.send(e.bytes); err != nil {
		return err
	}
	refused, err := k.answers()
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		return fmt.Errorf("%s: %w", e.origins.name(b, refused[0].sequence), asOurs(refused[0].errno))
	}
	return nil
}

// refusal is the kernel's answer to a message that it refuses.
type refusal struct {
	sequence uint32
	errno    unix.Errno
}

// answers returns the refusals of the batch that was just sent. The kernel has carried the batch
// out when send returns. It answers refused messages and those that request an answer.
func (k *Kernel) answers() (refused []refusal, err error) {
	for {
		answer, err := k.receive(unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return refused, nil
		}
		if err != nil {
			return nil, fmt.Errorf("answers to a batch: %w", err)
		}
		for m := range messages(answer) {
			if errno := m.errno(); errno != 0 {
				refused = append(refused, refusal{m.sequence, errno})
			}
		}
	}
}

// asOurs maps the kernel's error numbers to the errors of all backends.
func asOurs(errno unix.Errno) error {
	switch errno {
	case unix.ENOENT:
		return fmt.Errorf("%w (%w)", errMissing, errno)
	case unix.EEXIST:
		return fmt.Errorf("%w (%w)", errExists, errno)
	case unix.EBUSY:
		return fmt.Errorf("%w (%w)", errBusy, errno)
	}
	return errno
}

// origins has the first message of each operation.
type origins []uint32

func (o origins) name(b batch, sequence uint32) string {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i] <= sequence {
			return b[i].String()
		}
	}
	return "commit"
}

// encoded is an encoded batch, or why it cannot be encoded.
type encoded struct {
	bytes   []byte
	origins origins
	err     error
}

func encode(b batch) encoded {
	var buf buffer
	origins := make(origins, len(b))
	buf.bracket(unix.NFNL_MSG_BATCH_BEGIN, 0)
	last := 0
	for i, o := range b {
		origins[i] = uint32(buf.messages + 1)
		last = len(buf.bytes)
		if err := buf.operation(o); err != nil {
			return encoded{err: err}
		}
	}
	if len(b) > 0 {
		last = lastMessage(buf.bytes, last)
		flags := binary.NativeEndian.Uint16(buf.bytes[last+6:])
		binary.NativeEndian.PutUint16(buf.bytes[last+6:], flags|unix.NLM_F_ACK)
	}
	buf.bracket(unix.NFNL_MSG_BATCH_END, 0)
	return encoded{bytes: buf.bytes, origins: origins}
}

// lastMessage finds the last message, given the start of one.
func lastMessage(b []byte, at int) int {
	for {
		after := at + int(binary.NativeEndian.Uint32(b[at:]))
		if after >= len(b) {
			return at
		}
		at = after
	}
}

func (b *buffer) operation(o operation) error {
	switch o.kind {
	case addTable:
		b.end(b.object(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, o.ref, 0))
	case deleteTable:
		b.end(b.object(unix.NFT_MSG_DELTABLE, 0, o.ref, 0))
	case addCounter:
		m := b.object(unix.NFT_MSG_NEWOBJ, unix.NLM_F_CREATE, o.ref, unix.NFTA_OBJ_NAME)
		b.number(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
		b.unnest(b.nest(unix.NFTA_OBJ_DATA))
		b.end(m)
	case deleteCounter:
		m := b.object(unix.NFT_MSG_DELOBJ, 0, o.ref, unix.NFTA_OBJ_NAME)
		b.number(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
		b.end(m)
	case addSet:
		b.newSet(o.set, 0, 0)
	case deleteSet:
		b.end(b.object(unix.NFT_MSG_DELSET, 0, o.ref, unix.NFTA_SET_NAME))
	case addElements:
		b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, o.set, 0, o.elements)
	case deleteElements:
		b.elements(unix.NFT_MSG_DELSETELEM, 0, o.set, 0, o.elements)
	case flushSet:
		b.end(b.object(unix.NFT_MSG_DELSETELEM, 0, o.ref, unix.NFTA_SET_ELEM_LIST_SET))
	case addChain:
		m := b.object(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, o.ref, unix.NFTA_CHAIN_NAME)
		if o.hook != nil {
			b.hook(o.ref.table, o.hook)
		}
		b.end(m)
	case flushChain:
		b.end(b.object(unix.NFT_MSG_DELRULE, 0, o.ref, unix.NFTA_RULE_CHAIN))
	case deleteChain:
		b.end(b.object(unix.NFT_MSG_DELCHAIN, 0, o.ref, unix.NFTA_CHAIN_NAME))
	case addRules:
		for _, r := range o.rules() {
			if err := b.rule(o.ref, &r); err != nil {
				return err
			}
		}
	}
	return nil
}

// object begins a message about an object of a table, and returns its place for end. The attribute
// of the name depends on the kind of object.
func (b *buffer) object(kind, flags uint16, r ref, nameKind uint16) int {
	m := b.table(kind, flags, r.table)
	b.text(1, tableName)
	if r.name != "" {
		b.text(nameKind, r.name)
	}
	return m
}

func (b *buffer) hook(table family, h *hook) {
	at := b.nest(unix.NFTA_CHAIN_HOOK)
	b.number(unix.NFTA_HOOK_HOOKNUM, h.number(table))
	b.number(unix.NFTA_HOOK_PRIORITY, uint32(h.priority))
	b.unnest(at)
	b.number(unix.NFTA_CHAIN_POLICY, policyAccept)
	b.text(unix.NFTA_CHAIN_TYPE, h.kind)
}

// hasARP reports whether the kernel has tables of family arp, by making one in a batch.
func (k *Kernel) hasARP() (bool, error) {
	if k.arp != nil {
		return *k.arp, nil
	}
	var b buffer
	b.bracket(unix.NFNL_MSG_BATCH_BEGIN, 0)
	b.probe(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, func() {})
	b.probe(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func() {
		b.text(unix.NFTA_CHAIN_NAME, "probe")
		b.hook(arp, &hook{"filter", "input", 0})
	})
	b.probe(unix.NFT_MSG_DELTABLE, unix.NLM_F_ACK, func() {})
	b.bracket(unix.NFNL_MSG_BATCH_END, 0)
	k.drain()
	if err := k.send(b.bytes); err != nil {
		return false, err
	}
	refused, err := k.answers()
	if err != nil {
		return false, err
	}
	has := len(refused) == 0
	k.arp = &has
	return has, nil
}

// probe appends a message about a table that exists only within its batch.
func (b *buffer) probe(kind, flags uint16, more func()) {
	m := b.table(kind, flags, arp)
	b.text(unix.NFTA_TABLE_NAME, tableName+"-probe")
	more()
	b.end(m)
}

func (k *Kernel) generation(ctx context.Context) (uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.readGeneration(ctx)
}

// Watch calls changed once at first, and then whenever another program may have changed our tables,
// until ctx ends. It returns an error if it can no longer watch. [Table.Mend] finds what has
// changed.
func (k *Kernel) Watch(ctx context.Context, changed func()) error {
	if err := errors.Join(k.events.SetReadDeadline(time.Time{}), k.subscribe()); err != nil {
		return fmt.Errorf("nftables: watch: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = k.events.SetReadDeadline(past()) })
	defer stop()
	changed()
	room := make([]byte, 1<<18)
	for {
		n, err := k.events.Read(room)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			changed() // some events were lost
		case err != nil:
			return fmt.Errorf("nftables: watch: %w", err)
		case concernsUs(room[:n]):
			changed()
		}
	}
}

// subscribe requests all changes but our own.
func (k *Kernel) subscribe() error {
	raw, err := k.events.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	// The port of the sender is at byte 12 of its message; a filter reads it in network order.
	own := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, k.port))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: own},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	err = raw.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
			unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES))
	})
	return errors.Join(err, failed)
}

// concernsUs reports whether any message of a datagram is about one of our tables.
func concernsUs(datagram []byte) bool {
	for m := range messages(datagram) {
		if name, ok := m.attribute(1); ok && m.kind>>8 == unix.NFNL_SUBSYS_NFTABLES && m.kind&0xff != unix.NFT_MSG_NEWGEN && cString(name) == tableName {
			return true
		}
	}
	return false
}

package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
)

// Op is one operation of a commit, with its condition. A commit may have one operation for a key.
type Op struct {
	do       verb
	key      calico.Key
	object   any
	revision int64
	lease    LeaseID
}

type verb string

const (
	doCreate  verb = "create"
	doUpdate  verb = "update"
	doApply   verb = "apply"
	doReplace verb = "replace"
	doRemove  verb = "delete"
	doClear   verb = "clear"
	doCheck   verb = "check"
	doNone    verb = "none"
)

// OpCreate puts an object where there is none, or the commit fails with [ErrExists].
func OpCreate(key calico.Key, object any) Op { return Op{do: doCreate, key: key, object: object} }

// OpUpdate puts an object where there is one, or the commit fails with [ErrNotFound]. Unless
// revision is 0 the object there must be at this revision, or the commit fails with [ErrConflict].
// If the object's Unknown is nil, that of the object there is kept.
func OpUpdate(key calico.Key, object any, revision int64) Op {
	return Op{do: doUpdate, key: key, object: object, revision: revision}
}

// OpApply puts an object, new or not. If its Unknown is nil, that of the existing object is kept.
func OpApply(key calico.Key, object any) Op { return Op{do: doApply, key: key, object: object} }

// OpReplace puts an object exactly as it is given, without a look at what is there but its
// revision, for callers who have read it. Revision 0 means that there is none.
func OpReplace(key calico.Key, object any, revision int64) Op {
	return Op{do: doReplace, key: key, object: object, revision: revision}
}

// OpDelete deletes an object, or the commit fails with [ErrNotFound]. Unless revision is 0 the
// object must be at this revision, or the commit fails with [ErrConflict].
func OpDelete(key calico.Key, revision int64) Op {
	return Op{do: doRemove, key: key, revision: revision}
}

// OpClear deletes the object at a key, if any. At a [calico.IPAMHostKey] it deletes all below.
func OpClear(key calico.Key) Op { return Op{do: doClear, key: key} }

// OpCheck changes nothing. The object must be at this revision, or the commit fails with
// [ErrConflict] or [ErrNotFound]; with revision 0 it must not exist ([ErrExists]).
func OpCheck(key calico.Key, revision int64) Op { return Op{do: doCheck, key: key, revision: revision} }

// OpNone changes nothing. No object may match the filter, or the commit fails with [ErrExists]. The
// filter's prefixes must hold one kind of key: pools, blocks, handles, policies of a tier, status.
func OpNone(filter calico.Key) Op { return Op{do: doNone, key: filter} }

// Under returns the operation with what it puts under a lease: it vanishes when the lease ends.
func (o Op) Under(lease LeaseID) Op {
	o.lease = lease
	return o
}

// Create commits [OpCreate] and returns the revision of the object.
func (c *Client) Create(ctx context.Context, key calico.Key, object any) (int64, error) {
	return c.Commit(ctx, OpCreate(key, object))
}

// Update commits [OpUpdate] and returns the new revision of the object.
func (c *Client) Update(ctx context.Context, key calico.Key, object any, revision int64) (int64, error) {
	return c.Commit(ctx, OpUpdate(key, object, revision))
}

// Apply commits [OpApply] and returns the new revision of the object.
func (c *Client) Apply(ctx context.Context, key calico.Key, object any) (int64, error) {
	return c.Commit(ctx, OpApply(key, object))
}

// Delete commits [OpDelete].
func (c *Client) Delete(ctx context.Context, key calico.Key, revision int64) error {
	_, err := c.Commit(ctx, OpDelete(key, revision))
	return err
}

// Commit applies all operations at one revision, which it returns, or none of them. When conditions
// do not hold, the error has a [KeyError] for each of those keys. A commit of more than 128
// operations needs an etcd that allows them; else it fails with [ErrTooLarge].
func (c *Client) Commit(ctx context.Context, ops ...Op) (int64, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	writes, err := c.prepare(ops)
	if err != nil {
		return 0, err
	}
	found, err := c.readFor(ctx, writes)
	if err != nil {
		return 0, err
	}
	for {
		var t txn
		for _, w := range writes {
			if err := w.plan(&t, found); err != nil {
				return 0, err
			}
		}
		r, err := c.txn(ctx, t.conds, t.then, t.otherwise)
		if err != nil {
			return 0, c.explain(ctx, fmt.Sprintf("commit of %d operations", len(ops)), err)
		}
		if r.Succeeded {
			return r.Header.Revision, nil
		}
		// A condition of the caller's does not hold, or another writer was faster: then try again.
		found = kvs(r)
		if err := failed(writes, found); err != nil {
			return 0, err
		}
		for _, w := range writes {
			w.reads = w.reads || w.right != ""
		}
	}
}

// readFor reads what the writes need to know.
func (c *Client) readFor(ctx context.Context, writes []*write) (map[string]*mvccpb.KeyValue, error) {
	var paths []string
	var readers []*write
	for _, w := range writes {
		if w.reads {
			paths = append(paths, w.paths()...)
			readers = append(readers, w)
		}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	found, _, err := c.fetch(ctx, paths)
	if err != nil {
		return nil, err
	}
	return found, failed(readers, found)
}

// failed returns the conditions that do not hold.
func failed(writes []*write, found map[string]*mvccpb.KeyValue) error {
	var all []error
	for _, w := range writes {
		if err := w.check(found); err != nil {
			all = append(all, err)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// write is an operation on its way into a transaction.
type write struct {
	Op
	places
	value    []byte
	reads    bool     // needs what is there
	prefixes []string // of none
	codec    []calico.Option
}

// txn is a transaction of etcd in the making.
type txn struct {
	conds           []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (c *Client) prepare(ops []Op) ([]*write, error) {
	if len(ops) == 0 {
		return nil, errors.New("commit: no operations given")
	}
	seen := map[string]bool{}
	writes := make([]*write, len(ops))
	for i, o := range ops {
		if o.key == nil {
			return nil, fmt.Errorf("commit: operation %d has no key", i+1)
		}
		w, err := o.prepare(c.codec)
		if err != nil {
			return nil, err
		}
		if seen[w.left] {
			return nil, invalid(o.key, w.left, errors.New("two operations for one key in a commit"))
		}
		seen[w.left] = true
		writes[i] = w
	}
	return writes, nil
}

func (o Op) prepare(codec []calico.Option) (*write, error) {
	w := &write{Op: o, codec: codec}
	var err error
	if o.do == doNone {
		if w.prefixes, err = calico.Prefixes(o.key); err != nil {
			return nil, invalid(o.key, "", err)
		}
		w.left = w.prefixes[0]
		return w, nil
	}
	if w.places, err = placesOf(o.key); err != nil {
		return nil, err
	}
	w.reads = o.do == doUpdate || o.do == doApply && keeps(o.object)
	switch o.do {
	case doCreate, doUpdate, doApply, doReplace:
		if w.value, err = calico.Encode(o.key, o.object, codec...); err != nil {
			return nil, invalid(o.key, w.left, err)
		}
	}
	return w, nil
}

// check reports whether the caller's condition holds on what was found.
func (w *write) check(found map[string]*mvccpb.KeyValue) error {
	kv := w.effective(found)
	for _, p := range w.prefixes {
		for path, one := range found {
			if strings.HasPrefix(path, p) {
				kv = one
			}
		}
	}
	absent := w.do == doCreate || w.do == doNone || (w.do == doReplace || w.do == doCheck) && w.revision == 0
	e := &KeyError{Key: w.key, Path: w.left, Want: w.revision}
	if kv != nil {
		e.Path, e.Have = string(kv.Key), kv.ModRevision
	}
	switch {
	case w.do == doApply || w.do == doClear || absent && kv == nil:
		return nil
	case absent:
		e.Err = ErrExists
	case kv == nil:
		e.Err = ErrNotFound
	case w.revision != 0 && kv.ModRevision != w.revision:
		e.Err = ErrConflict
	default:
		return nil
	}
	return e
}

// plan adds the operation to a transaction, with the conditions under which it is right.
func (w *write) plan(t *txn, found map[string]*mvccpb.KeyValue) error {
	if w.do == doNone {
		for _, p := range w.prefixes {
			t.conds = append(t.conds, clientv3.Compare(clientv3.CreateRevision(p).WithPrefix(), "=", 0))
			t.otherwise = append(t.otherwise, clientv3.OpGet(p, clientv3.WithPrefix(), clientv3.WithLimit(1)))
		}
		return nil
	}
	for _, p := range w.paths() {
		t.conds = append(t.conds, w.condition(p, found)...)
		t.otherwise = append(t.otherwise, clientv3.OpGet(p))
	}
	switch w.do {
	case doCheck:
	case doRemove, doClear:
		for _, p := range w.paths() {
			t.then = append(t.then, clientv3.OpDelete(p))
		}
		if w.below != "" {
			t.then = append(t.then, clientv3.OpDelete(w.below, clientv3.WithPrefix()))
		}
	default:
		value, err := w.keeping(w.effective(found))
		if err != nil {
			return err
		}
		t.then = append(t.then, clientv3.OpPut(w.left, string(value), clientv3.WithLease(clientv3.LeaseID(w.lease))))
		if w.right != "" {
			t.then = append(t.then, clientv3.OpDelete(w.right))
		}
	}
	return nil
}

// condition returns the comparisons for one place of the key.
func (w *write) condition(path string, found map[string]*mvccpb.KeyValue) []clientv3.Cmp {
	at := func(op string, revision int64) []clientv3.Cmp {
		return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(path), op, revision)}
	}
	switch {
	case w.reads && found[path] != nil: // what was read is as it was
		return at("=", found[path].ModRevision)
	case w.reads || w.do == doCreate:
		return at("=", 0)
	case w.do == doApply || w.do == doClear:
		return nil
	case w.revision == 0 && w.do != doRemove:
		return at("=", 0)
	case path == w.right: // nothing to ask while the left one is as it should be
		return nil
	case w.revision == 0:
		return at(">", 0)
	}
	return at("=", w.revision)
}

// keeping returns the value to write, with the existing unknown members unless there are own.
func (w *write) keeping(there *mvccpb.KeyValue) ([]byte, error) {
	if there == nil || w.do != doUpdate && w.do != doApply {
		return w.value, nil
	}
	if !keeps(w.object) {
		return w.value, nil
	}
	stored, err := calico.Decode(w.key, there.Value, w.codec...)
	if err != nil {
		return w.value, nil // what cannot be read is replaced
	}
	kept, ok := unknown(stored)
	if !ok || kept.Len() == 0 {
		return w.value, nil
	}
	// A copy: the caller's object stays as it is.
	object := reflect.New(reflect.TypeOf(w.object).Elem())
	object.Elem().Set(reflect.ValueOf(w.object).Elem())
	object.Elem().FieldByName("Unknown").Set(kept)
	value, err := calico.Encode(w.key, object.Interface(), w.codec...)
	if err != nil {
		return nil, invalid(w.key, w.left, err)
	}
	return value, nil
}

// keeps reports whether an object takes over the unknown members of the one it is put over.
func keeps(object any) bool {
	f, ok := unknown(object)
	return ok && f.IsNil()
}

// unknown returns the member Unknown of an object that is a pointer to a struct with one.
func unknown(object any) (reflect.Value, bool) {
	v := reflect.ValueOf(object)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	f := v.Elem().FieldByName("Unknown")
	return f, f.IsValid() && f.Type() == reflect.TypeFor[calico.Unknown]()
}

package xapi

import (
	"errors"
	"fmt"
	"slices"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// pool reads the pool's objects and, in a transaction, changes them. Its first error sticks, as
// that of a bufio.Writer does: from then on reads give empty objects and writes do nothing. An
// operation is therefore written as if all went well, and the caller that made the pool looks at
// the error in the end; nothing is committed when there is one.
type pool struct {
	records.Reader
	tx  *records.Tx // nil: it only reads
	err error
}

// over returns a pool that reads r, and changes it if it is a transaction.
func over(r records.Reader) *pool {
	tx, _ := r.(*records.Tx)
	return &pool{Reader: r, tx: tx}
}

// change commits what f does, all or nothing. f may run several times, see [records.DB.Update].
func (c *call) change(f func(p *pool)) error { return c.update(changing(f)) }

// changing returns a transaction's function that runs f.
func changing(f func(p *pool)) func(tx *records.Tx) error {
	return func(tx *records.Tx) error {
		p := over(tx)
		f(p)
		return p.err
	}
}

// look returns a pool for reading that has everything committed so far.
func (c *call) look() *pool {
	snap, err := c.view()
	if err != nil {
		return &pool{Reader: c.server.now(), err: err}
	}
	return over(snap)
}

// fail keeps the first error.
func (p *pool) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// get returns an object, which the commit needs to be unchanged. It must not be modified: see edit.
func (p *pool) get(class, ref string) *objects.Object {
	if p.err == nil {
		o, err := object(p.Reader, class, ref)
		if err == nil {
			return o
		}
		p.fail(err)
	}
	return &objects.Object{Class: class, Ref: ref, Fields: model.Record{}}
}

// needs fails if an object does not exist.
func (p *pool) needs(class, ref string) { p.get(class, ref) }

// own returns the pool's own object.
func (p *pool) own() *objects.Object {
	if p.err == nil {
		o, err := thePool(p.Reader)
		if err == nil {
			return o
		}
		p.fail(err)
	}
	return &objects.Object{Class: "pool", Fields: model.Record{}}
}

// alive returns the report of a host's agent. Without one it fails with HOST_OFFLINE.
func (p *pool) alive(host string) *objects.HostReport {
	p.needs("host", host)
	report, ok := objects.HostReports.Peek(p, host)
	if !ok {
		p.fail(model.HostOffline(host))
		return &objects.HostReport{Host: host}
	}
	return report
}

// able fails with what to do if the host cannot do a thing of those in HostReport.Can.
func (p *pool) able(host, can, advice string) {
	report := p.alive(host)
	if !slices.Contains(report.Can, can) && !slices.Contains(report.Can, objects.Imagined) {
		p.fail(model.OperationNotAllowed(fmt.Sprintf("host %s: %s", report.Name, advice)))
	}
}

// put stores objects, in order.
func (p *pool) put(all ...*objects.Object) {
	for _, o := range all {
		if p.err == nil {
			p.fail(put(p.tx, o))
		}
	}
}

// edit stores an object with other values of some fields, which must not be modified afterwards.
func (p *pool) edit(o *objects.Object, fields model.Record) *objects.Object {
	changed := edited(o, fields)
	p.put(changed)
	return changed
}

// renew is edit, unless the object has these values already.
func (p *pool) renew(o *objects.Object, fields model.Record) *objects.Object {
	for f, v := range fields {
		if !same(o.Fields[f], v) {
			return p.edit(o, fields)
		}
	}
	return o
}

// remove deletes objects of a class.
func (p *pool) remove(class string, refs ...string) {
	for _, ref := range refs {
		if p.err == nil {
			p.fail(remove(p.tx, class, ref))
		}
	}
}

// removeAll deletes objects of one class.
func (p *pool) removeAll(all []*objects.Object) {
	for _, o := range all {
		p.remove(o.Class, o.Ref)
	}
}

// uses notes that the transaction makes an object that refers to these, or sets one going on them.
func (p *pool) uses(refs ...string) {
	for _, ref := range refs {
		p.tx.Mark(guard(ref))
	}
}

// alone has the commit fail, and be tried again, when another transaction begins to use the objects
// at the same time. Reading alone needs no such care.
func (p *pool) alone(refs ...string) {
	for _, ref := range refs {
		if p.tx != nil {
			p.tx.Heed(guard(ref))
		}
	}
}

// inTurn has transactions that choose from the same names go one after another, instead of all
// choosing the same one.
func (p *pool) inTurn(names string) {
	if p.tx != nil {
		p.tx.Touch("xen-names/" + names)
	}
}

// putRecord stores a record that is no object.
func putRecord[T any](p *pool, table *records.Table[T], record *T) {
	if p.err == nil {
		p.fail(table.Put(p.tx, record))
	}
}

// discard deletes a record that is no object, if it is there.
func discard[T any](p *pool, table *records.Table[T], id string) {
	if p.err == nil {
		p.fail(unlessGone(table.Delete(p.tx, id)))
	}
}

// unlessGone returns an error unless it says that a record is not there.
func unlessGone(err error) error {
	if absent := (*records.NotFoundError)(nil); errors.As(err, &absent) {
		return nil
	}
	return err
}

package reconcile

import (
	"context"
	"fmt"
)

// sweep reads back the target when that is due and the desired items are complete: what is missing
// or differs is set again, what is not desired is deleted.
func (r *Reconciler[K, V]) sweep(ctx context.Context) {
	now := r.opts.Now()
	r.mu.Lock()
	due := r.complete && !now.Before(r.sweepAt)
	r.mu.Unlock()
	if !due {
		return
	}
	found, err := r.opts.Target.Found(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.sweepAt = now.Add(r.opts.RetryMax)
		if ctx.Err() == nil {
			r.opts.Log.Warn("cannot read back what is there", "what", r.opts.Name, "err", err)
		}
		return
	}
	r.sweepAt = now.Add(r.opts.SweepEvery)
	missing, differs := 0, 0
	for k, it := range r.items {
		value, there := found[k]
		switch {
		case it.state != placed:
			it.known = it.known || there
		case !there:
			missing++
			it.mark()
		case !r.opts.Equal(it.value, value):
			differs++
			it.mark()
		}
	}
	left := 0
	for k, value := range found {
		if r.items[k] == nil {
			left++
			r.items[k] = &item[V]{value: value, known: true}
		}
	}
	if missing+differs+left > 0 {
		r.opts.Log.Info("what is there differs from what is wanted", "what", r.opts.Name,
			"missing", missing, "different", differs, "left over", fmt.Sprint(left))
	}
}

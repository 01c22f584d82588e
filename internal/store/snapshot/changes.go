package snapshot

// mostChanges is the number of recent changes that snapshots keep at least; they keep up to twice
// as many.
const mostChanges = 4096

// changeLog has the ids of the records that changed most recently. It never changes: snapshots
// share its parts, and those of two successors of one snapshot do not disturb each other.
type changeLog struct {
	recent, older *changes
}

// changes are those of one snapshot, and after before all since the log was cut.
type changes struct {
	before *changes
	places []Place
	total  int // with all before
}

// Place is the table of a record and its id there.
type Place struct{ Source, ID string }

// with returns the log with the changes of one more snapshot. A log cut by too many of them reaches
// no further back than to that snapshot.
func (l changeLog) with(changed []Changed) changeLog {
	switch {
	case len(changed) > mostChanges:
		return changeLog{recent: &changes{}}
	case len(changed) == 0 && l.recent != nil:
		return l
	case l.recent != nil && l.recent.total+len(changed) > mostChanges:
		l = changeLog{older: l.recent}
	}
	next := &changes{before: l.recent, total: len(changed)}
	if l.recent != nil {
		next.total += l.recent.total
	}
	for _, c := range changed {
		next.places = append(next.places, Place{c.Source, c.ID})
	}
	return changeLog{next, l.older}
}

// ChangedSince returns where this snapshot may have other records than an earlier one, of which it
// is a successor, or the same. A place may come twice. It reports false if that is not known: the
// other is no predecessor, or too much has changed in between.
func (s *Snapshot) ChangedSince(earlier *Snapshot) (all []Place, known bool) {
	from := earlier.log.recent
	for _, c := range []*changes{s.log.recent, s.log.older} {
		for ; c != nil && c != from; c = c.before {
			all = append(all, c.places...)
		}
		if c != nil {
			return all, true
		}
	}
	return nil, false
}

package records

import "heddle/internal/store"

// Keys of no table: derived from records, for other programs. A transaction writes them blindly, so
// each must follow from records that it writes or guards: then the last commit has derived it from
// the current ones.

// PutKey writes a key of no table. It replaces an earlier PutKey or DeleteKey of it.
func (tx *Tx) PutKey(key string, value []byte) {
	tx.keys[key] = store.Op{Key: key, Value: value}
}

// DeleteKey deletes a key of no table; that it is missing is no error.
func (tx *Tx) DeleteKey(key string) {
	tx.keys[key] = store.Op{Key: key, Delete: true}
}

// ExpectKey makes the commit fail, and the function run again, unless the key of no table has the
// ModRevision mod, or is missing if mod is 0. The function reads the key from the store in each
// run.
func (tx *Tx) ExpectKey(key string, mod int64) {
	tx.records[key] = store.Cond{Key: key, Mod: mod}
}

package records

import "heddle/internal/store"

// Keys of no table: what other programs read in a form of their own, derived from records. A transaction writes them
// blindly, so each must follow from records that the same transaction writes or guards; then whoever commits last has
// derived it from what is there.

// PutKey writes a key of no table, in place of what the transaction has said about it before.
func (tx *Tx) PutKey(key string, value []byte) {
	tx.keys[key] = store.Op{Key: key, Value: value}
}

// DeleteKey deletes a key of no table; that it is missing is no error.
func (tx *Tx) DeleteKey(key string) {
	tx.keys[key] = store.Op{Key: key, Delete: true}
}

// ExpectKey has the commit fail, and the function run again, unless the key of no table still has the ModRevision mod, or
// is still missing where mod is 0. It is for who reads such a key himself, from the store and in each run anew.
func (tx *Tx) ExpectKey(key string, mod int64) {
	tx.records[key] = store.Cond{Key: key, Mod: mod}
}

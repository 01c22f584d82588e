// Package legacy holds what programs need who still have Calico's first etcd tree (seed 000): endpoints with a single
// profile each, profiles of rules and tags, and a reference count for every profile.
//
// A [Merger] shows that tree and the v1 tree as one, without I/O. A [Writer] writes the tree and keeps its counts, a
// [Collector] deletes profiles that nobody names, and a [Migration] moves everything into the v1 tree.
package legacy

// Package legacy holds what programs need who still have Calico's first etcd tree (seed 000): endpoints with a single
// profile each, profiles of rules and tags, and a reference count for every profile.
//
// A [Merger] shows that tree and the v1 tree as one, without I/O.
package legacy

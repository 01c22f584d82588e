// Package legacy supports Calico's first etcd tree (seed 000): endpoints with a single profile
// each, profiles of rules and tags, and a reference count for every profile.
//
// A [Merger] merges that tree with the v1 tree, without I/O. A [Writer] writes the tree and keeps
// its counts, a [Collector] deletes unused profiles, and a [Migration] moves everything into v1.
package legacy

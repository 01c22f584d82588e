// Package plan decides about service containers (services §2, §5): which host runs each, what a
// host has to run, how haproxy is configured for the checks of a load balancer's members, and what
// its words mean.
package plan

// Package overlay is the agent that makes virtual networks real on one host.
package overlay

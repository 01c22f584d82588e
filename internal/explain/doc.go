// Package explain answers operators' questions about the virtual network from the code that
// forwards in it (explain §5):
//
//	question ─▶ ends ─▶ first packet ─▶ simulate ─▶ arrives? ─▶ reply ─▶ simulate ─▶ answer
//	                                       ▲                                           │ denied
//	                                       └── with a change made in memory ◀──────────┘
//
// A [World] is kept from question to question and follows the store.
package explain

// Package reach finds out which services a machine can reach at another, for all headers at once
// (explain §6). It has the simulator decide one packet, asks it what the decision rests on
// ([simulate.Reads]), and lets the decision stand for all packets that it cannot tell apart; the
// next packet is the first that it may. So the answer is exact, and from the code that forwards.
//
// A reaches B by a service if the first packet of a new connection, whole and from a port for
// clients, arrives at B, and the answer at A.
package reach

// Package xapi serves the XenAPI over a pool in the store: XML-RPC and JSON-RPC, sessions and
// roles, every call that the model implies, events, tasks, and what the messages do. Several
// servers may run over one store.
//
//	HTTP ─▶ wire: decode ─▶ dispatch: session, role, parameters ─▶ generic call, or a handler
//	                                                                   │ one transaction
//	store ─watch─▶ replica ─▶ journal: what changed when ─▶ event.from, event.next
//
// Objects are stored with their own fields; far sides, such as network.PIFs, are found by index
// when somebody asks. Reading asks this server's replica alone, which has all that the server has
// written itself.
package xapi

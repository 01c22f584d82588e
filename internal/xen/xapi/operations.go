package xapi

import (
	"maps"

	"heddle/internal/task"
)

// operations are the handlers of messages that change the pool, by call ("tunnel.create").
func operations() map[string]handler {
	all := map[string]handler{}
	for _, class := range []map[string]handler{
		tunnelMessages(), pifMessages(), pifRecordMessages(), networkMessages(), vlanMessages(), bondMessages(), vifMessages(), vmMessages(), hostMessages(), poolMessages(),
	} {
		maps.Copy(all, class)
	}
	return all
}

// background are the server's parts that keep the pool's objects, started in this order before it answers.
func (s *Server) background() []task.Task {
	return []task.Task{newKeeper(s), newMarker(s)}
}

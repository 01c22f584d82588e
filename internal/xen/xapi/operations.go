package xapi

import "heddle/internal/task"

// operations are the handlers of messages that change the pool, by call ("tunnel.create").
func operations() map[string]handler {
	return map[string]handler{}
}

// background are the server's parts that keep the pool's objects, started in this order before it answers.
func (s *Server) background() []task.Task {
	return nil
}

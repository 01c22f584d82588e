package calico

import (
	"strings"
	"time"
)

func readAgentStatus(r *reader) *AgentStatus {
	s := &AgentStatus{}
	r.members(s, &s.Unknown)
	return s
}

func (s *AgentStatus) member(r *reader, name string) bool {
	switch name {
	case "time":
		s.Time = r.kept()
	case "uptime":
		s.Uptime = r.number()
	case "first_update":
		s.FirstUpdate = r.boolean()
	default:
		return false
	}
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (s *AgentStatus) Validate() error { return s.check().of(string(KindAgentStatus)) }

func (s *AgentStatus) check() *Error {
	_, err := time.Parse(time.RFC3339Nano, s.Time)
	switch {
	case s.Time == "":
		return refuse("time", nil, "is missing; %s", wantTime)
	case err != nil || !strings.HasSuffix(s.Time, "Z"):
		return refuse("time", s.Time, wantTime)
	case s.Uptime < 0 || s.Uptime-s.Uptime != 0:
		return refuse("uptime", s.Uptime, "want seconds from 0")
	}
	return checkUnknown[AgentStatus](s.Unknown)
}

const wantTime = "want a time of UTC like 2015-08-14T10:37:54Z"

func (s *AgentStatus) write(w *writer) {
	w.open('{')
	w.stringMember("time", s.Time)
	w.name("uptime")
	w.text = appendNumber(w.text, s.Uptime)
	w.boolMember("first_update", s.FirstUpdate)
	w.unknown(s.Unknown)
	w.end('}')
}

func readEndpointStatus(r *reader) *EndpointStatus {
	s := &EndpointStatus{}
	r.members(s, &s.Unknown)
	return s
}

func (s *EndpointStatus) member(r *reader, name string) bool {
	if name != "status" {
		return false
	}
	s.Status = oneOf(r.optional(), StatusUp, StatusDown, StatusError)
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (s *EndpointStatus) Validate() error { return s.check().of("EndpointStatus") }

func (s *EndpointStatus) check() *Error {
	switch s.Status {
	case StatusUp, StatusDown, StatusError:
		return checkUnknown[EndpointStatus](s.Unknown)
	case "":
		return refuse("status", nil, "is missing; want up, down or error")
	}
	return refuse("status", s.Status, "want up, down or error")
}

func (s *EndpointStatus) write(w *writer) {
	w.open('{')
	w.stringMember("status", s.Status)
	w.unknown(s.Unknown)
	w.end('}')
}

func readHostMetadata(r *reader) *HostMetadata {
	m := &HostMetadata{}
	r.members(m, &m.Unknown)
	return m
}

func (m *HostMetadata) member(*reader, string) bool { return false }

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (m *HostMetadata) Validate() error { return m.check().of(string(KindHostMetadata)) }

func (m *HostMetadata) check() *Error { return checkUnknown[HostMetadata](m.Unknown) }

func (m *HostMetadata) write(w *writer) {
	w.open('{')
	w.unknown(m.Unknown)
	w.end('}')
}

func readOrchRefs(r *reader) *OrchRefs {
	refs := OrchRefs{}
	if r.peek() == 'n' {
		r.wrong("want a list")
	}
	r.list(func(int) {
		ref := OrchRef{}
		r.members(&ref, &ref.Unknown)
		refs = append(refs, ref)
	})
	return &refs
}

func (ref *OrchRef) member(r *reader, name string) bool {
	switch name {
	case "orchestrator":
		ref.Orchestrator = r.kept()
	case "nodeName":
		ref.NodeName = r.kept()
	default:
		return false
	}
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (refs OrchRefs) Validate() error { return refs.check().of(string(KindOrchRefs)) }

func (refs OrchRefs) check() *Error {
	for i := range refs {
		ref := &refs[i]
		if ref.Orchestrator == "" {
			return refuse("orchestrator", nil, "is missing").in(index("", i))
		}
		if err := first(checkText("orchestrator", ref.Orchestrator), checkText("nodeName", ref.NodeName), checkUnknown[OrchRef](ref.Unknown)); err != nil {
			return err.in(index("", i))
		}
	}
	return nil
}

func (refs OrchRefs) write(w *writer) {
	w.open('[')
	for i := range refs {
		w.comma()
		w.open('{')
		w.stringMember("orchestrator", refs[i].Orchestrator)
		w.optional("nodeName", refs[i].NodeName)
		w.unknown(refs[i].Unknown)
		w.end('}')
	}
	w.end(']')
}

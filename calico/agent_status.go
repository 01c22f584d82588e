package calico

import (
	"strings"
	"time"
)

var agentStatusTable = table[AgentStatus]{
	columns: []column[AgentStatus]{
		member("time", func(s *AgentStatus) *string { return &s.Time }, asText),
		member("uptime", func(s *AgentStatus) *float64 { return &s.Uptime }, format[float64]{(*reader).number, (*writer).float, nil}),
		member("first_update", func(s *AgentStatus) *bool { return &s.FirstUpdate }, asBoolean),
	},
	unknown: func(s *AgentStatus) *Unknown { return &s.Unknown },
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (s *AgentStatus) Validate() error { return s.check(options{}).of(string(KindAgentStatus)) }

func (s *AgentStatus) check(options) *Error {
	_, err := time.Parse(time.RFC3339Nano, s.Time)
	switch {
	case s.Time == "":
		return refuse("time", nil, "is missing; %s", wantTime)
	case err != nil || !strings.HasSuffix(s.Time, "Z"):
		return refuse("time", s.Time, wantTime)
	case s.Uptime < 0 || s.Uptime-s.Uptime != 0:
		return refuse("uptime", s.Uptime, "want seconds from 0")
	}
	return agentStatusTable.checkUnknown(s)
}

const wantTime = "want a time of UTC like 2015-08-14T10:37:54Z"

func (s *AgentStatus) write(w *writer) { agentStatusTable.write(w, s) }

var endpointStatusTable = table[EndpointStatus]{
	columns: []column[EndpointStatus]{
		member("status", func(s *EndpointStatus) *string { return &s.Status }, asWord(StatusUp, StatusDown, StatusError)),
	},
	unknown: func(s *EndpointStatus) *Unknown { return &s.Unknown },
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (s *EndpointStatus) Validate() error { return s.check(options{}).of("EndpointStatus") }

func (s *EndpointStatus) check(options) *Error {
	switch s.Status {
	case StatusUp, StatusDown, StatusError:
		return endpointStatusTable.checkUnknown(s)
	case "":
		return refuse("status", nil, "is missing; want up, down or error")
	}
	return refuse("status", s.Status, "want up, down or error")
}

func (s *EndpointStatus) write(w *writer) { endpointStatusTable.write(w, s) }

var hostMetadataTable = table[HostMetadata]{unknown: func(m *HostMetadata) *Unknown { return &m.Unknown }}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (m *HostMetadata) Validate() error { return m.check(options{}).of(string(KindHostMetadata)) }

func (m *HostMetadata) check(options) *Error { return hostMetadataTable.checkUnknown(m) }

func (m *HostMetadata) write(w *writer) { hostMetadataTable.write(w, m) }

var orchRefTable = table[OrchRef]{
	columns: []column[OrchRef]{
		member("orchestrator", func(ref *OrchRef) *string { return &ref.Orchestrator }, asText),
		member("nodeName", func(ref *OrchRef) *string { return &ref.NodeName }, asText),
	},
	unknown: func(ref *OrchRef) *Unknown { return &ref.Unknown },
}

func readOrchRefs(r *reader) *OrchRefs {
	refs := OrchRefs{}
	r.list(func(int) { refs = append(refs, *orchRefTable.object(r)) })
	return &refs
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (refs OrchRefs) Validate() error { return refs.check(options{}).of(string(KindOrchRefs)) }

func (refs OrchRefs) check(options) *Error {
	for i := range refs {
		ref := &refs[i]
		if ref.Orchestrator == "" {
			return refuse("orchestrator", nil, "is missing").in(index("", i))
		}
		if err := first(checkText("orchestrator", ref.Orchestrator), checkText("nodeName", ref.NodeName), orchRefTable.checkUnknown(ref)); err != nil {
			return err.in(index("", i))
		}
	}
	return nil
}

func (refs OrchRefs) write(w *writer) { orchRefTable.writeList(w, refs) }

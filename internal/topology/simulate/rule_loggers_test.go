package simulate

import (
	"testing"

	"heddle/internal/topology"
)

func (l *lab) ruleLogger(x topology.RuleLogger) []string {
	return l.Apply(owner("firewall-log", x.ID), &topology.Bundle{RuleLoggers: []topology.RuleLogger{x}})
}

func (l *lab) loggingResource(id string, enabled bool) []string {
	return l.Apply(owner("logging-resource", id), &topology.Bundle{LoggingResources: []topology.LoggingResource{{ID: id, Type: topology.TypeFile, Enabled: enabled}}})
}

// TestRuleLogged: a chain's loggers note what it decides, called by a filter or by another chain,
// while their resource is enabled.
func TestRuleLogged(t *testing.T) {
	t.Parallel()
	open, closed := tcp(1, 2, 4000, 80), tcp(1, 2, 4000, 81)
	for _, tt := range []struct {
		name, chain, event string
		open, closed       string
	}{
		{"called by a chain", "web/ingress", topology.LogAll, "x ACCEPT  web/80", ""},
		{"called by a filter", "p2/out", topology.LogAll, "x ACCEPT  web/80", "x DROP  p2/out/last"},
		{"accepted", "p2/out", topology.LogAccept, "x ACCEPT  web/80", ""},
		{"dropped", "p2/out", topology.LogDrop, "", "x DROP  p2/out/last"},
		{"another chain", "p3/out", topology.LogAll, "", ""},
	} {
		l := logging()
		l.loggingResource("file", true)
		l.ruleLogger(topology.RuleLogger{ID: "x", ChainID: tt.chain, LoggingResourceID: "file", Event: tt.event})
		if got := l.logged(t, "p1", open); got != tt.open {
			t.Errorf("%s: open: logged %q, want %q", tt.name, got, tt.open)
		}
		if got := l.logged(t, "p1", closed); got != tt.closed {
			t.Errorf("%s: closed: logged %q, want %q", tt.name, got, tt.closed)
		}
		l.loggingResource("file", false)
		if got := l.logged(t, "p1", open) + l.logged(t, "p1", closed); got != "" {
			t.Errorf("%s: not enabled: logged %q", tt.name, got)
		}
	}
}

// TestRuleLoggersCome: loggers, their resources and chains may come and go in any order. Ports
// whose decisions they are about are decided anew, and no reference is left.
func TestRuleLoggersCome(t *testing.T) {
	t.Parallel()
	l := logging()
	x := topology.RuleLogger{ID: "x", ChainID: "p2/out", LoggingResourceID: "file", Event: topology.LogAll,
		Metadata: []topology.Metadata{{Key: topology.MetadataFirewall, Value: "fw"}, {Key: topology.MetadataTenant, Value: "t"}}}
	wantAffected(t, "logger", l.ruleLogger(x), "p2")
	if got := l.logged(t, "p1", tcp(1, 2, 4000, 80)); got != "" {
		t.Errorf("without a resource: logged %q", got)
	}
	wantAffected(t, "resource", l.loggingResource("file", true), "p2")
	wantAffected(t, "the same again", l.loggingResource("file", true))
	d := l.send("p1", tcp(1, 2, 4001, 80))
	if len(d.Logged) != 1 || d.Logged[0].Resource != "file" || d.Logged[0].Firewall != "fw" || d.Logged[0].TenantID != "t" {
		t.Errorf("logged %+v", d.Logged)
	}
	wantAffected(t, "another resource", l.ruleLogger(topology.RuleLogger{ID: "x", ChainID: "p2/out", LoggingResourceID: "other", Event: topology.LogAll}), "p2")
	wantAffected(t, "of no logger", l.loggingResource("file", false))
	wantAffected(t, "no logger", l.Apply(owner("firewall-log", "x"), nil), "p2")
	empty := newLab()
	empty.ruleLogger(x)
	empty.loggingResource("file", true)
	empty.Apply(owner("logging-resource", "file"), nil)
	empty.Apply(owner("firewall-log", "x"), nil)
	if !empty.Empty() {
		t.Error("loggers that are gone leave references")
	}
}

package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// putExternal has a new external network on the physical network that hosts carry, unless its type
// is given. Without a type the API makes one of type vxlan while no host carries any: it leads
// nowhere, and stays so when a host does.
func putExternal(attributes map[string]any) {
	_, typed := attributes["provider:network_type"]
	_, numbered := attributes["provider:segmentation_id"]
	if attributes["router:external"] == true && !typed && !numbered {
		attributes["provider:network_type"] = "flat"
	}
}

// noteUnbound prints that a port that was given a host is bound to none, as no host of that name
// has joined. The API accepts that, and binds the port when the host joins.
func noteUnbound(cmd *cobra.Command, login *cloud.Config, attributes map[string]any, port cloud.Object) {
	host, _ := attributes["binding:host_id"].(string)
	if host == "" || port["binding:vif_type"] != "binding_failed" {
		return
	}
	terminal.Fprintf(cmd.ErrOrStderr(), "note: port %s is bound to no host and carries nothing until a host %s joins%s\n", cmp.Or(port.Text("name"), port.ID()), host, otherHosts(cmd, login, host))
}

// otherHosts returns the end of a message about the name of a host that has not joined: the names
// that may be meant, as far as the caller may know them.
func otherHosts(cmd *cobra.Command, login *cloud.Config, host string) string {
	var answer struct {
		Hosts []operator.Host `json:"hosts"`
	}
	if err := callOperator(cmd, login, http.MethodGet, "/v1/hosts", nil, &answer); err != nil {
		return ""
	}
	var names []string
	for _, h := range answer.Hosts {
		names = append(names, h.Name)
	}
	if len(names) == 0 {
		return "; none has joined yet"
	}
	rest := ""
	if more := len(names) - mostNamed; more > 0 {
		rest = fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(command.DidYouMean("", host, names), "; joined are "+strings.Join(names[:min(len(names), mostNamed)], ", ")+rest)
}

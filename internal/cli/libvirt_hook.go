package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/cloud"
	"heddle/internal/libvirt"
	"heddle/internal/plug"
)

// hookTimeout bounds a call of libvirt's hook: libvirt does nothing else with the domain meanwhile.
const hookTimeout = 20 * time.Second

// hookClouds is the file with the credentials of libvirt's hook, which has no user's variables.
const hookClouds = "/etc/heddle/clouds.yaml"

// libvirtHookCommand binds the ports of libvirt's domains.
func libvirtHookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "libvirt-hook DOMAIN OPERATION SUB-OPERATION EXTRA < DOMAIN.XML",
		Short: "Bind the ports of virtual machines that libvirt runs, as libvirt's hook",
		Long: `Called by libvirt, as /etc/libvirt/hooks/qemu.d/heddle-libvirt-hook, a link to heddle. The metadata of a domain names its ports:
<heddle:port xmlns:heddle='https://heddle.invalid/libvirt' id='PORT-ID'/>, or several of these in one <heddle:ports>. Domains
without are left alone.
Before a machine starts here its ports are bound to this host. A port that is bound to another host gets an inactive binding, which becomes active
when the machine runs here: after a live migration. When the machine has ended, or migrated, its ports are taken from this host.
If a port cannot be bound, the machine does not start, and libvirt reports the error.`,
		Args: cobra.ExactArgs(4),
	}
	c := cloudFlags(cmd)
	var host, state string
	f := cmd.Flags()
	f.StringVar(&c.File, "clouds", hookClouds, "clouds.yaml `file` whose cloud heddle has an administrator's credentials; without it the server is found as by other commands")
	f.StringVar(&host, "host", "", "`name` of this host's agent; default: the one in its state directory, else the host's name")
	f.StringVar(&state, "state", "/var/lib/heddle-agent", "state `directory` of this host's agent, which has its name")
	ofSections(f, "state", "agent")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		domain, err := libvirt.ReadDomain(cmd.InOrStdin())
		if err != nil || len(domain.Ports) == 0 || !libvirt.Handles(args[1]) {
			return err
		}
		if _, err := os.Stat(c.File); errors.Is(err, os.ErrNotExist) && !f.Changed("clouds") {
			c.File = ""
		}
		if c.File != "" {
			if err := cloud.CheckCredentials(c.File); err != nil {
				return fmt.Errorf("ports of domain %s: %w", domain.Name, err)
			}
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), hookTimeout)
		defer cancel()
		hook, err := newHook(ctx, c, host, state)
		if err != nil {
			return fmt.Errorf("ports of domain %s: %w", domain.Name, err)
		}
		return hook.Handle(ctx, args[1], domain)
	}
	return cmd
}

func newHook(ctx context.Context, c *cloud.Config, host, state string) (*libvirt.Hook, error) {
	if host == "" {
		name, err := plug.AgentName(state)
		if err != nil {
			return nil, err
		}
		host = name
	}
	session, err := c.Login(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the server's API: %w", err)
	}
	api, err := session.Neutron()
	return &libvirt.Hook{API: api, Host: host}, err
}

// Package cni is the plug-in by which container runtimes give containers the interfaces of Neutron
// ports (the Container Network Interface, https://www.cni.dev/docs/spec/, versions 0.3.1 to 1.1.0).
//
// The runtime calls it with a command in the environment and a network configuration on standard
// input. ADD makes a port that is bound to this host, plugs it into the container's namespace with
// package plug, and waits until the host's agent serves it; DEL takes all of it away.
package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"heddle/internal/cloud"
	"heddle/internal/hostnet"
	"heddle/internal/plug"
)

const (
	// callTimeout bounds a call of the plug-in, and cleanupTimeout what it does after a failure.
	callTimeout    = 30 * time.Second
	cleanupTimeout = 10 * time.Second
	// serveTimeout bounds the time until the host's agent serves a port.
	serveTimeout = 10 * time.Second
)

// Codes of errors that CNI leaves to the plug-in, and of STATUS.
const (
	codeNotReady = 50  // nothing can be added
	codeRefused  = 100 // by the Neutron API
	codeChanged  = 101 // CHECK: something is not as ADD left it
)

// Run carries out the command in this process's environment, and prints its result. about is what
// it prints without a command.
func Run(ctx context.Context, about string) *types.Error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	with := func(do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return coded(do(ctx, args)) }
	}
	return skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: with(add), Del: with(del), Check: with(check), GC: with(gc), Status: with(status),
	}, version.VersionsStartingFrom("0.3.1"), about)
}

// coded gives an error its code of CNI.
func coded(err error) error {
	var own *types.Error
	var refused *cloud.Refused
	var notServed *plug.NotServedError
	var network net.Error
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError:
		return types.NewError(codeRefused, err.Error(), "")
	case errors.As(err, &refused), errors.As(err, &notServed), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}

// attachment returns what a call is about.
func (c *config) attachment(args *skel.CmdArgs) plug.Attachment {
	return plug.Attachment{Network: c.Name, ContainerID: args.ContainerID, Interface: args.IfName}
}

// place returns the container's end of the interface that a call is about.
func (c *config) place(args *skel.CmdArgs) plug.Place {
	a := c.attachment(args)
	return plug.Place{Netns: args.Netns, Interface: args.IfName, Attachment: &a}
}

// open logs in. The caller closes the plugger's Net.
func (c *config) open(ctx context.Context) (*plug.Plugger, error) {
	if err := cloud.CheckCredentials(c.Credentials); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	host := c.Host
	if host == "" {
		var err error
		if host, err = plug.AgentName(c.State); err != nil {
			return nil, err
		}
	}
	// The runtime may run without a home directory, so the token is kept in the agent's.
	session, err := cloud.Config{File: c.Credentials, TokenDir: filepath.Join(c.State, "tokens")}.Login(ctx)
	if err != nil {
		return nil, err
	}
	api, err := session.Neutron()
	if err != nil {
		return nil, err
	}
	here, err := hostnet.Here()
	if err != nil {
		return nil, err
	}
	return &plug.Plugger{API: api, Net: here, Dir: plug.RecordsDir(c.State), Host: host, Wait: serveTimeout}, nil
}

// add gives a container its interface. On failure nothing is left.
func add(ctx context.Context, args *skel.CmdArgs) error {
	c, invalid := readConfig(args.StdinData, args.Args)
	if invalid != nil {
		return invalid
	}
	if c.PrevResult != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "heddle-cni makes the interface: put it before the other plug-ins of the list", "")
	}
	if _, err := os.Stat(args.Netns); err != nil {
		return types.NewError(types.ErrInvalidNetNS, "network namespace of the container: "+err.Error(), "")
	}
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer p.Net.Close()
	alone, err := c.attachment(args).Claim()
	if err != nil {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	}
	defer alone.Close()
	var id string
	if c.Port != "" {
		id, err = find(ctx, p, cloud.Port, c.Port, c.portOfArgs)
	} else {
		id, err = c.createPort(ctx, p, c.attachment(args))
	}
	if err != nil {
		return err
	}
	result, err := p.Plug(ctx, id, c.place(args))
	if err == nil {
		return types.PrintResult(newResult(result, args.Netns), c.CNIVersion)
	}
	if c.Port == "" {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, p.DeletePort(cleanup, id))
	}
	return err
}

// find returns the id of an object of the login's project or, by an id in the network
// configuration, of another. The login is an administrator's, who sees what all projects call their
// objects: no tenant is to choose a container's network by a name.
func find(ctx context.Context, p *plug.Plugger, k cloud.Kind, idOrName string, ofArgs bool) (string, error) {
	if cloud.IsID(idOrName) && !ofArgs {
		return p.API.Find(ctx, k, idOrName)
	}
	id, err := p.API.FindOwn(ctx, k, idOrName)
	if err != nil && !ofArgs {
		err = fmt.Errorf("%w; one of another project is named by its id", err)
	}
	return id, err
}

// createPort makes a port on the network, and returns its id.
func (c *config) createPort(ctx context.Context, p *plug.Plugger, a plug.Attachment) (string, error) {
	network, err := find(ctx, p, cloud.Network, c.Network, false)
	if err != nil {
		return "", err
	}
	attributes := map[string]any{"network_id": network, "name": c.podName}
	if c.MAC != "" {
		attributes["mac_address"] = c.MAC
	}
	if len(c.IPs) > 0 {
		fixed := make([]map[string]string, len(c.IPs))
		for i, address := range c.IPs {
			fixed[i] = map[string]string{"ip_address": address}
		}
		attributes["fixed_ips"] = fixed
	}
	if c.SecurityGroups != nil {
		groups := make([]string, len(c.SecurityGroups))
		for i, group := range c.SecurityGroups {
			if groups[i], err = find(ctx, p, cloud.SecurityGroup, group, c.groupsOfArgs); err != nil {
				return "", err
			}
		}
		attributes["security_groups"] = groups
	}
	return p.CreatePort(ctx, a, attributes)
}

// del takes away what add made, as far as it is there. The interface goes even while the server is
// away; the runtime then calls again.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, invalid := readConfig(args.StdinData, "IgnoreUnknown=1")
	if invalid != nil {
		return invalid
	}
	a := c.attachment(args)
	alone, err := a.Claim()
	if err != nil {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	}
	defer alone.Close()
	here, err := hostnet.Here()
	if err != nil {
		return err
	}
	defer here.Close()
	if err := here.DeleteLink(a.Device()); err != nil {
		return err
	}
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer p.Net.Close()
	return p.Release(ctx, a)
}

// check compares an attachment with what add made, and with the result that the runtime has.
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, invalid := readConfig(args.StdinData, args.Args)
	if invalid != nil {
		return invalid
	}
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer p.Net.Close()
	now, err := p.Check(ctx, c.place(args))
	if err != nil {
		return types.NewError(codeChanged, err.Error(), "")
	}
	if err := c.comparePrevious(args.IfName, now); err != nil {
		return types.NewError(codeChanged, err.Error(), "")
	}
	return nil
}

// gc takes away the attachments to the network that the runtime does not list.
func gc(ctx context.Context, args *skel.CmdArgs) error {
	c, invalid := readConfig(args.StdinData, "")
	if invalid != nil {
		return invalid
	}
	valid := map[types.GCAttachment]bool{}
	for _, a := range append(c.ValidAttachments, c.Attachments...) {
		valid[a] = true
	}
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer p.Net.Close()
	all, err := p.Attachments(ctx, c.Name)
	if err != nil {
		return err
	}
	var failed []error
	for _, a := range all {
		if !valid[types.GCAttachment{ContainerID: a.ContainerID, IfName: a.Interface}] {
			failed = append(failed, collect(ctx, p, a))
		}
	}
	return errors.Join(failed...)
}

// collect takes away one attachment.
func collect(ctx context.Context, p *plug.Plugger, a plug.Attachment) error {
	alone, err := a.Claim()
	if err != nil {
		return err
	}
	defer alone.Close()
	return p.Release(ctx, a)
}

// status returns an error unless containers can be added: the server answers, and this host's agent
// runs.
func status(ctx context.Context, args *skel.CmdArgs) error {
	c, invalid := readConfig(args.StdinData, "")
	if invalid != nil {
		return invalid
	}
	p, err := c.open(ctx)
	if err == nil {
		defer p.Net.Close()
		err = p.Ready(ctx)
	}
	if err != nil {
		return types.NewError(codeNotReady, err.Error(), "")
	}
	return nil
}

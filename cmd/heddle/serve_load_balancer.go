package main

import (
	"net"

	"github.com/spf13/pflag"

	"heddle/internal/api"
	"heddle/internal/api/octaviav2"
)

// loadBalancerConfig holds the settings of the API of load balancers.
type loadBalancerConfig struct {
	listen  string
	aliases []string // of the provider
}

const (
	loadBalancerPort = "9876"
	noLoadBalancers  = "none"
)

func (c *loadBalancerConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.listen, "load-balancer-listen", "", "`address` of the load balancer API, Octavia's; none: it is not served (default port "+loadBalancerPort+" of the Neutron API's address)")
	f.StringArrayVar(&c.aliases, "lb-provider-alias", nil, "`name` that requests for load balancers may give as the provider too, such as amphora or ovn, so that files written for another cloud go on working; repeatable")
}

// address returns where the API listens, "" for nowhere: by default on the Neutron API's address.
func (c *loadBalancerConfig) address(neutron string) string {
	if c.listen == noLoadBalancers {
		return ""
	}
	if c.listen != "" {
		return c.listen
	}
	host, port, err := net.SplitHostPort(neutron)
	if err != nil {
		return "" // the Neutron API's own check says so
	}
	if port == "0" {
		return neutron // any free one
	}
	return net.JoinHostPort(host, loadBalancerPort)
}

func (s *server) addLoadBalancerAPI() error {
	c := s.config
	address := c.loadBalancer.address(c.neutron)
	if address == "" {
		return nil
	}
	handler := octaviav2.New(octaviav2.Options{
		Operations: s.control, Tokens: s.tokens, IdentityURL: s.identityURL, Timeout: requestTimeout, ProviderAliases: c.loadBalancer.aliases,
		Log: s.log.With("part", "load balancer API"),
	})
	_, err := s.addServer(api.Options{
		Name: "load-balancer", Listen: address, Handler: handler, CertFile: c.tlsCert, KeyFile: c.tlsKey, MaxBody: octaviav2.MaxBody, Refuse: octaviav2.Refuse, Audited: true,
	})
	return err
}

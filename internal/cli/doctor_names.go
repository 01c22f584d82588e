package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// namesTime bounds the DNS queries about a name.
const namesTime = 5 * time.Second

// nameCheck looks the name of this machine up by a resolver, and its addresses back.
func nameCheck(r *net.Resolver, hostname func() (string, error)) Check {
	return Check{
		Name: "name of this machine", For: "logs, and those who read them", Optional: true,
		Fix: "have the name resolve to this machine's address and the address to the name: in DNS, or by a line in /etc/hosts",
		Run: func(ctx context.Context) error {
			name, err := hostname()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, namesTime)
			defer cancel()
			return resolveBothWays(ctx, r, name)
		},
	}
}

func resolveBothWays(ctx context.Context, r *net.Resolver, name string) error {
	addresses, err := r.LookupHost(ctx, name)
	if err != nil {
		return fmt.Errorf("%s has no address: %w", name, err)
	}
	var wrong []string
	for _, address := range addresses {
		names, err := r.LookupAddr(ctx, address)
		if missing := new(net.DNSError); errors.As(err, &missing) && missing.IsNotFound {
			names = []string{"no name"}
		} else if err != nil {
			return fmt.Errorf("name of %s: %w", address, err)
		}
		if slices.ContainsFunc(names, func(n string) bool { return isSameHost(n, name) }) {
			return nil
		}
		wrong = append(wrong, fmt.Sprintf("%s has %s", address, strings.Join(names, ", ")))
	}
	return fmt.Errorf("no address of %s leads back to it: %s", name, strings.Join(wrong, "; "))
}

// isSameHost reports whether two names are one, which may be without a domain.
func isSameHost(a, b string) bool {
	a, b = strings.ToLower(strings.TrimSuffix(a, ".")), strings.ToLower(strings.TrimSuffix(b, "."))
	return a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}

// ownNameCheck is nameCheck with this machine's resolver.
func ownNameCheck() Check { return nameCheck(net.DefaultResolver, os.Hostname) }

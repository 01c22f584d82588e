package neutron

import (
	"net/netip"
	"regexp"
	"strings"

	"heddle/internal/topology"
)

// maxFQDN bounds a domain name with its final dot, characters.
const maxFQDN = 255

// The parts of domain names that the reference takes.
var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	allNumeric = regexp.MustCompile(`^[0-9]+$`)
)

// portDNSName takes the dns_name of a port: relative to the server's domain, or with a final dot
// below it, which [CheckDNSName] decides.
func portDNSName(v any) (any, error) { return domainName(v, dnsReason) }

// floatingDNSName takes the dns_name of a floating IP, which is relative to its dns_domain.
func floatingDNSName(v any) (any, error) {
	return domainName(v, func(name string) error {
		if strings.HasSuffix(name, ".") {
			return reasonf("'%s' is a FQDN. It should be a relative domain name", name)
		}
		if err := dnsReason(name); err != nil {
			return err
		}
		if len(name) > maxFQDN-3 {
			return reasonf("'%s' contains %d characters. Adding a domain name will cause it to exceed the maximum length of a FQDN of '%d'",
				name, len(name), maxFQDN)
		}
		return nil
	})
}

// dnsDomain takes a domain with its final dot.
func dnsDomain(v any) (any, error) {
	return domainName(v, func(domain string) error {
		if !strings.HasSuffix(domain, ".") {
			return reasonf("'%s' is not a FQDN", domain)
		}
		if err := dnsReason(domain); err != nil {
			return err
		}
		if len(domain) > maxFQDN-2 {
			return reasonf("'%s' contains %d characters. Adding a sub-domain will cause it to exceed the maximum length of a FQDN of '%d'",
				domain, len(domain), maxFQDN)
		}
		return nil
	})
}

// domainName takes a string that is empty or passes check.
func domainName(v any, check func(string) error) (any, error) {
	s, err := text(0)(v)
	if err != nil || s == "" {
		return s, err
	}
	return s, check(s.(string))
}

// dnsReason refuses what is neither a relative nor a full domain name.
func dnsReason(name string) error {
	if why := dnsFault(name); why != nil {
		return reasonf("'%s' not a valid PQDN or FQDN. Reason: %s", name, why)
	}
	return nil
}

func dnsFault(name string) error {
	trimmed := strings.TrimSuffix(name, ".")
	if len(trimmed) > maxFQDN {
		return reasonf("'%s' exceeds the %d character FQDN limit", trimmed, maxFQDN)
	}
	labels := strings.Split(trimmed, ".")
	for _, label := range labels {
		switch {
		case label == "":
			return reason("Encountered an empty component")
		case strings.HasPrefix(label, "-"), strings.HasSuffix(label, "-"):
			return reasonf("Name '%s' must not start or end with a hyphen", label)
		case !dnsLabel.MatchString(label):
			return reasonf("Name '%s' must be 1-63 characters long, each of which can only be alphanumeric or a hyphen", label)
		}
	}
	if last := labels[len(labels)-1]; len(labels) > 1 && allNumeric.MatchString(last) {
		return reasonf("TLD '%s' must not be all numeric", last)
	}
	return nil
}

// CheckDNSName refuses the dns_name of a port that does not go with the server's domain, given
// without its final dot.
func CheckDNSName(name, domain string) error {
	higher := ""
	if domain != "" {
		domain += "."
		higher = "." + domain
	}
	var why error
	switch full := strings.HasSuffix(name, "."); {
	case !full && name != "" && len(name)+len(higher) > maxFQDN:
		why = reasonf("The dns_name passed is a PQDN and its size is '%d'. The dns_domain option in neutron.conf is set to %s, with a length of '%d'. "+
			"When the two are concatenated to form a FQDN (with a '.' at the end), the resulting length exceeds the maximum size of '%d'",
			len(name), domain, len(higher), maxFQDN)
	case full && (len(name) <= len(higher) || !strings.HasSuffix(name, higher)):
		why = reasonf("The dns_name passed is a FQDN. Its higher level labels must be equal to the dns_domain option in neutron.conf, "+
			"that has been set to '%[1]s'. It must also include one or more valid DNS labels to the left of '%[1]s'", domain)
	}
	if why == nil {
		return nil
	}
	return badRequest("Invalid input for dns_name. Reason: %s.", why)
}

// CheckFloatingDNS refuses the name of a floating IP without a domain, and a domain without a name.
func CheckFloatingDNS(name, domain string) error {
	bad := func(missing, given string) error {
		return Errorf(Invalid, "BadRequest", "Bad floatingip request: %s cannot be specified without a %s.", given, missing)
	}
	switch {
	case domain != "" && name == "":
		return bad("dns_name", "dns_domain")
	case name != "" && domain == "":
		return bad("dns_domain", "dns_name")
	}
	return nil
}

// appendAssignment appends the name of an address in a port's dns_assignment. name is the port's
// dns_name; without one the name is made of the address, as in host-10-0-0-5.
func appendAssignment(b []byte, a netip.Addr, name, domain string) []byte {
	b = append(b, `{"ip_address":`...)
	b = appendAddr(b, a)
	b = append(b, `,"hostname":"`...)
	start := len(b)
	b = topology.AppendHostname(b, a, name)
	hostname := b[start:]
	b = append(b, `","fqdn":"`...)
	b = append(b, hostname...)
	if domain != "" && !strings.HasSuffix(name, ".") {
		b = append(b, '.')
		b = append(b, domain...)
		b = append(b, '.')
	}
	return append(b, `"}`...)
}

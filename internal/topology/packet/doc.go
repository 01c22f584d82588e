// Package packet decodes and builds frames: Ethernet, ARP, IPv4, IPv6, ICMP, TCP, UDP, DHCP, VXLAN. Decoding works on
// the given slice without allocating; unknown protocols are values, short or malformed input is an error.
package packet

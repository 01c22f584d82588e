// Package packet decodes and builds frames: Ethernet, ARP, IPv4, IPv6, ICMP, TCP, UDP, DHCP.
// Decoding does not allocate; unknown protocols are values, short or malformed input is an error.
package packet

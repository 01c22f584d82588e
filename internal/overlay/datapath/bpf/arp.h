/* Answers to ARP requests and neighbour solicitations, so that workloads find each other while no agent runs, and without
 * waiting for it while one does. The agent decides who may ask (askers), as it decides flows, and keeps the addresses of
 * the networks that this host has ports in (neighbours). Whatever is not found here goes up. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>

#include "maps.h"
#include "output.h"

#define NOT_ANSWERED -2 /* no verdict of a program */

/* IPv4 addresses stand as ::ffff:a.b.c.d. */
struct asker_key {
	__u32 port;
	__u8 mac[6];
	__u16 pad;
	__be32 ip[4];
};

/* A sender that is answered about every neighbour of its network, as long as its tag has not moved. */
struct asker {
	__u64 network;
	struct tag tag;
};

struct neighbour_key {
	__u64 network;
	__be32 ip[4];
};

struct neighbour {
	__u8 mac[6];
	__u16 router; /* 1: of a router; IPv6 alone says so */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct asker_key);
	__type(value, struct asker);
} askers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct neighbour_key);
	__type(value, struct neighbour);
} neighbours SEC(".maps");

struct arp_frame {
	struct ethhdr eth;
	__be16 hardware, protocol;
	__u8 hardware_len, protocol_len;
	__be16 op;
	__u8 sha[6];
	__be32 spa;
	__u8 tha[6];
	__be32 tpa;
} __attribute__((packed));

/* A neighbour solicitation or advertisement with its link-layer address option and no other. */
struct nd_frame {
	struct ethhdr eth;
	struct ipv6hdr ip;
	__u8 type, code;
	__be16 check;
	__be32 flags;
	__be32 target[4];
	__u8 option, option_len, link[6];
} __attribute__((packed));

#define ND_BYTES 32	    /* of ICMPv6 */
#define ND_ADDRESSES (14 + 8) /* where the two IPv6 addresses are in the frame */
#define ND_SOLICITED_OVERRIDE 0x60000000
#define ND_ROUTER 0x80000000

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	__u8 differ = 0;

#pragma unroll
	for (int i = 0; i < 6; i++) /* a MAC address in a frame is not aligned */
		differ |= a[i] ^ b[i];
	return !differ;
}

/* find_neighbour returns the owner of target in the network of the asker, unless the question is for the agent: asked by
 * one who may not be answered here, about an unknown address or the asker's own, or of a machine that is not the owner. */
static __always_inline struct neighbour *find_neighbour(const struct asker_key *from, struct neighbour_key *target,
							const __u8 *dst)
{
	struct asker *a = bpf_map_lookup_elem(&askers, from);
	struct neighbour *n;
	__u32 slot, *epoch;

	if (!a)
		return NULL;
	slot = a->tag.slot;
	epoch = bpf_map_lookup_elem(&epochs, &slot);
	if (!epoch || *epoch != a->tag.epoch)
		return NULL;
	target->network = a->network;
	n = bpf_map_lookup_elem(&neighbours, target);
	if (!n || same_mac(n->mac, from->mac) || (!(dst[0] & 1) && !same_mac(dst, n->mac)))
		return NULL;
	return n;
}

/* give_back sends the answer that stands in the first n bytes of the frame out by where the question came in. */
static __always_inline int give_back(struct __sk_buff *skb, __u32 n)
{
	if (skb->len != n && bpf_skb_change_tail(skb, n, 0))
		return dropped(DROP_KERNEL);
	count(COUNT_ANSWERED);
	return bpf_redirect(skb->ifindex, 0);
}

static __noinline int answer_arp(struct __sk_buff *skb, __u32 port)
{
	struct arp_frame f;
	struct asker_key from = {.port = port};
	struct neighbour_key target = {};
	const __u8 broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	struct neighbour *n;
	__be32 asked;

	if (bpf_skb_load_bytes(skb, 0, &f, sizeof(f)) || f.hardware != bpf_htons(1) || f.protocol != bpf_htons(ETH_P_IP) ||
	    f.hardware_len != 6 || f.protocol_len != 4 || f.op != bpf_htons(1) || f.spa == f.tpa ||
	    !same_mac(f.sha, f.eth.h_source))
		return NOT_ANSWERED;
	if (f.eth.h_dest[0] & 1 && !same_mac(f.eth.h_dest, broadcast))
		return NOT_ANSWERED;
	__builtin_memcpy(from.mac, f.sha, 6);
	from.ip[2] = target.ip[2] = bpf_htonl(0xffff);
	from.ip[3] = f.spa;
	target.ip[3] = asked = f.tpa;
	n = find_neighbour(&from, &target, f.eth.h_dest);
	if (!n)
		return NOT_ANSWERED;
	__builtin_memcpy(f.eth.h_dest, from.mac, 6);
	__builtin_memcpy(f.eth.h_source, n->mac, 6);
	f.op = bpf_htons(2);
	f.tpa = f.spa;
	f.spa = asked;
	__builtin_memcpy(f.tha, from.mac, 6);
	__builtin_memcpy(f.sha, n->mac, 6);
	if (bpf_skb_store_bytes(skb, 0, &f, sizeof(f), 0))
		return dropped(DROP_KERNEL);
	return give_back(skb, sizeof(f));
}

static __noinline int answer_nd(struct __sk_buff *skb, __u32 port)
{
	struct nd_frame f;
	struct asker_key from = {.port = port};
	struct neighbour_key target = {};
	struct neighbour *n;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, 0, &f, sizeof(f)) || f.ip.version != 6 || f.ip.payload_len != bpf_htons(ND_BYTES) ||
	    f.ip.nexthdr != IPPROTO_ICMPV6 || f.ip.hop_limit != 255 || f.type != 135 || f.code != 0 || f.option != 1 ||
	    f.option_len != 1 || !same_mac(f.link, f.eth.h_source))
		return NOT_ANSWERED;
	__builtin_memcpy(from.mac, f.link, 6);
	__builtin_memcpy(from.ip, &f.ip.saddr, 16);
	__builtin_memcpy(target.ip, f.target, 16);
	n = find_neighbour(&from, &target, f.eth.h_dest);
	if (!n)
		return NOT_ANSWERED;
	__builtin_memcpy(f.eth.h_dest, from.mac, 6);
	__builtin_memcpy(f.eth.h_source, n->mac, 6);
	__builtin_memset(&f.ip, 0, 4);
	f.ip.version = 6;
	__builtin_memcpy(&f.ip.saddr, target.ip, 16);
	__builtin_memcpy(&f.ip.daddr, from.ip, 16);
	f.type = 136;
	f.check = 0;
	f.flags = n->router ? bpf_htonl(ND_ROUTER | ND_SOLICITED_OVERRIDE) : bpf_htonl(ND_SOLICITED_OVERRIDE);
	f.option = 2;
	__builtin_memcpy(f.link, n->mac, 6);
	/* Both addresses, length and protocol, then the message. */
	sum = bpf_csum_diff(NULL, 0, (void *)&f + ND_ADDRESSES, 32, bpf_htonl(ND_BYTES + IPPROTO_ICMPV6));
	if (sum < 0)
		return dropped(DROP_KERNEL);
	sum = bpf_csum_diff(NULL, 0, (void *)&f + sizeof(f) - ND_BYTES, ND_BYTES, sum);
	if (sum < 0)
		return dropped(DROP_KERNEL);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	f.check = ~sum;
	if (bpf_skb_store_bytes(skb, 0, &f, sizeof(f), 0))
		return dropped(DROP_KERNEL);
	return give_back(skb, sizeof(f));
}

/* answer answers a question about a neighbour that came in at the port, or leaves it untouched: NOT_ANSWERED. */
static __always_inline int answer(struct __sk_buff *skb, __u32 port)
{
	if (skb->vlan_present)
		return NOT_ANSWERED;
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return answer_arp(skb, port);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return answer_nd(skb, port);
	return NOT_ANSWERED;
}

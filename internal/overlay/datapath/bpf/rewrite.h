/* Other headers for the frames of a flow, after routers and address translation. The checksums change by the difference
 * of the old and the new fields (RFC 1624). Helpers alone write: see to_tunnel. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "maps.h"
#include "parse.h"

#define UNCHANGED 0xffff /* a difference of sums that is none */

enum rewritten {
	REWRITTEN,
	REFUSED,   /* by the kernel */
	CUT_SHORT, /* the transport header ends before its checksum; the frame is as it was */
};

static __always_inline __be32 vni_of(const struct flow *f)
{
	return f->vni_hops & bpf_htonl(0xffffff00);
}

static __always_inline __u8 hops_of(const struct flow *f)
{
	return bpf_ntohl(f->vni_hops) & 0xff;
}

/* expires reports whether so many routers use up the frame's TTL or hop limit. */
static __always_inline int expires(struct __sk_buff *skb, __u8 hops)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct ipv6hdr *ip6 = data + ETH_HLEN;

	if (!hops)
		return 0;
	if ((void *)(ip + 1) > end)
		return 1;
	return (eth->h_proto == bpf_htons(ETH_P_IP) ? ip->ttl : ip6->hop_limit) <= hops;
}

/* fold ends a one's complement sum of 32-bit words; those of bytes in memory order. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* What transport headers need to know of a change of addresses. */
struct translation {
	__u16 before; /* sum of the addresses that the frame came with */
	__u16 difference;
	__be16 sport, dport; /* the new ones */
};

/* checksum_at returns where the checksum is in the transport header; 0 if none covers addresses or ports. That of SCTP
 * covers ports, but Install takes no flow that changes them. */
static __always_inline __u32 checksum_at(const struct transport *t)
{
	if (t->frag == LATER_FRAG)
		return 0;
	switch (t->proto) {
	case IPPROTO_TCP:
		return 16;
	case IPPROTO_UDP:
	case PROTO_UDPLITE:
	case PROTO_DCCP:
		return 6;
	case IPPROTO_ICMP:
	case PROTO_ICMP6:
		return 2;
	}
	return 0;
}

/* is_cut_short reports whether the frame lacks what rewrite_transport changes. */
static __always_inline int is_cut_short(const struct transport *t)
{
	__u32 at = checksum_at(t);

	return at && (t->room < 8 || t->room < at + 2);
}

/* mend changes a checksum by the differences of the addresses and of other fields. One that is left to hardware holds
 * the sum of the pseudo-header, which has the addresses alone; the helper knows. */
static __always_inline int mend(struct __sk_buff *skb, __u32 at, __u16 addresses, __u16 others, __u64 flags)
{
	if (addresses != UNCHANGED && bpf_l4_csum_replace(skb, at, 0, addresses, flags | BPF_F_PSEUDO_HDR))
		return REFUSED;
	if (others != UNCHANGED && bpf_l4_csum_replace(skb, at, 0, others, flags))
		return REFUSED;
	return REWRITTEN;
}

static __always_inline int rewrite_echo(struct __sk_buff *skb, const struct transport *t, const struct translation *x,
					const __be16 *h)
{
	__u16 id = UNCHANGED, addresses = t->proto == PROTO_ICMP6 ? x->difference : UNCHANGED;

	if (t->frag == WHOLE)
		id = fold((__u64)x->sport + (__u16)~h[2]);
	if (mend(skb, t->offset + 2, addresses, id, 0))
		return REFUSED;
	if (id != UNCHANGED && bpf_skb_store_bytes(skb, t->offset + 4, &x->sport, sizeof(x->sport), 0))
		return REFUSED;
	return REWRITTEN;
}

static __always_inline int rewrite_segment(struct __sk_buff *skb, const struct transport *t, const struct translation *x,
					   __u16 ports)
{
	if (mend(skb, t->offset + 16, x->difference, ports, 0))
		return REFUSED;
	if (ports != UNCHANGED && bpf_skb_store_bytes(skb, t->offset, &x->sport, 4, 0))
		return REFUSED;
	return REWRITTEN;
}

/* rewrite_datagram rewrites the first 8 bytes h of UDP and its like. The helper takes every checksum for unfinished as
 * long as the hardware is to finish one. That may be one further in, behind the outer headers of a workload's own tunnel,
 * and the one here finished. So the helper is asked only if the field holds the sum of the pseudo-header. */
static __always_inline int rewrite_datagram(struct __sk_buff *skb, const struct transport *t,
					    const struct translation *x, __be16 *h, __u16 ports)
{
	const int zero_is_none = t->proto != PROTO_DCCP;
	__u16 check = h[3];

	if (t->frag == WHOLE) {
		h[0] = x->sport;
		h[1] = x->dport;
	}
	if (check == fold((__u64)x->before + bpf_htons(t->proto) + h[2])) {
		if (mend(skb, t->offset + 6, x->difference, ports, zero_is_none ? BPF_F_MARK_MANGLED_0 : 0) ||
		    bpf_skb_store_bytes(skb, t->offset, h, 4, 0))
			return REFUSED;
		return REWRITTEN;
	}
	if (check || !zero_is_none) {
		h[3] = ~fold((__u64)(__u16)~check + x->difference + ports);
		if (!h[3] && zero_is_none)
			h[3] = 0xffff;
	}
	return bpf_skb_store_bytes(skb, t->offset, h, 8, BPF_F_RECOMPUTE_CSUM) ? REFUSED : REWRITTEN;
}

static __noinline int rewrite_transport(struct __sk_buff *skb, const struct transport *t, const struct translation *x)
{
	__u16 ports = UNCHANGED;
	__be16 h[4];

	if (!checksum_at(t))
		return REWRITTEN;
	if (bpf_skb_load_bytes(skb, t->offset, h, sizeof(h)))
		return REFUSED;
	if (t->proto == IPPROTO_ICMP || t->proto == PROTO_ICMP6)
		return rewrite_echo(skb, t, x, h);
	if (t->frag == WHOLE) /* a fragment's ports are not in its key */
		ports = fold((__u64)x->sport + x->dport + (__u16)~h[0] + (__u16)~h[1]);
	if (t->proto == IPPROTO_TCP)
		return rewrite_segment(skb, t, x, ports);
	return rewrite_datagram(skb, t, x, h, ports);
}

/* rewrite4 gives the frame the headers of its flow. The sum over an IPv4 header is always the same, so that a checksum
 * over the whole packet, as hardware gives, stays right. */
static __noinline int rewrite4(struct __sk_buff *skb, const struct flow4 *f, const struct transport *t)
{
	const __u32 translates = f->common.kind & TRANSLATES;
	struct translation x = {.sport = f->to.sport, .dport = f->to.dport};
	struct {
		__u16 align;
		struct ethhdr eth;
		struct iphdr ip;
	} head;

	if (translates && is_cut_short(t))
		return CUT_SHORT;
	if (bpf_skb_load_bytes(skb, 0, &head.eth, ETH_HLEN + sizeof(head.ip)))
		return REFUSED;
	x.before = fold((__u64)head.ip.saddr + head.ip.daddr);
	x.difference = fold((__u64)f->to.saddr + f->to.daddr + (__u16)~x.before);
	__builtin_memcpy(&head.eth, f->to.dmac, 12);
	head.ip.saddr = f->to.saddr;
	head.ip.daddr = f->to.daddr;
	head.ip.ttl -= hops_of(&f->common);
	/* The TTL is the lower byte of its word. */
	head.ip.check = ~fold((__u64)(__u16)~head.ip.check + x.difference + (__u16)~hops_of(&f->common));
	if (bpf_skb_store_bytes(skb, 0, &head.eth, ETH_HLEN + sizeof(head.ip), 0))
		return REFUSED;
	return translates ? rewrite_transport(skb, t, &x) : REWRITTEN;
}

static __always_inline __u64 sum_of(const __be32 *address)
{
	return (__u64)address[0] + address[1] + address[2] + address[3];
}

/* rewrite6 is rewrite4 for IPv6. A change of its header changes a checksum over the whole packet. */
static __noinline int rewrite6(struct __sk_buff *skb, const struct flow6 *f, const struct transport *t)
{
	const __u32 translates = f->common.kind & TRANSLATES;
	struct translation x = {.sport = f->to.sport, .dport = f->to.dport};
	struct {
		__u16 align;
		struct ethhdr eth;
		struct ipv6hdr ip;
	} head;
	__u16 hops = hops_of(&f->common) << 8; /* the hop limit is the upper byte of its word */

	if (translates && is_cut_short(t))
		return CUT_SHORT;
	if (bpf_skb_load_bytes(skb, 0, &head.eth, ETH_HLEN + sizeof(head.ip)))
		return REFUSED;
	x.before = fold(sum_of(head.ip.saddr.s6_addr32) + sum_of(head.ip.daddr.s6_addr32));
	x.difference = fold(sum_of(f->to.saddr) + sum_of(f->to.daddr) + (__u16)~x.before);
	__builtin_memcpy(&head.eth, f->to.dmac, 12);
	__builtin_memcpy(&head.ip.saddr, f->to.saddr, 32);
	head.ip.hop_limit -= hops_of(&f->common);
	if (bpf_skb_store_bytes(skb, 0, &head.eth, ETH_HLEN + sizeof(head.ip), 0))
		return REFUSED;
	bpf_csum_update(skb, fold((__u64)x.difference + (__u16)~hops)); /* an error: there is none */
	return translates ? rewrite_transport(skb, t, &x) : REWRITTEN;
}

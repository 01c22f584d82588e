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

/* A change of addresses and ports, and what follows from it. */
struct translation {
	__u16 before;	     /* sum of the addresses that the frame came with */
	__u16 addresses;     /* difference of the addresses */
	__be16 sport, dport; /* the new ones */
	__u16 whole;	     /* difference of the whole packet, but for what the helper accounts for */
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

#define TCP_WORDS 5   /* of a transport header are read and written, for its ports and checksum */
#define OTHER_WORDS 2 /* the same for other protocols */

/* is_cut_short reports whether the frame lacks what translate changes. */
static __always_inline int is_cut_short(const struct transport *t)
{
	__u32 at = checksum_at(t);

	return at && t->room < (at == 16 ? TCP_WORDS : OTHER_WORDS) * 4;
}

/* load reads words from where they nearly always are, the packet's linear part, or else at more cost. */
static __always_inline int load(struct __sk_buff *skb, __u32 at, __be32 *to, const __u32 words)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	const __be32 *from;

	if (at <= 0xff) {
		from = data + at;
		if ((void *)(from + words) <= end) {
#pragma unroll
			for (__u32 i = 0; i < words; i++)
				to[i] = from[i];
			return 0;
		}
	}
	return bpf_skb_load_bytes(skb, at, to, words * 4);
}

/* mend changes a checksum that may be left to hardware: then it holds the sum of the pseudo-header, which has the
 * addresses and not the ports. The helper alone knows which it is. What it makes of the difference of the addresses tells:
 * it adds that to a sum and takes it from a complement. */
static __always_inline int mend(struct __sk_buff *skb, __u32 at, const struct translation *x, __u16 others, __be16 *check)
{
	__u16 unfinished = fold((__u64)*check + x->addresses);
	__be32 after;

	if (x->addresses == UNCHANGED) {
		if (bpf_l4_csum_replace(skb, at, 0, others, 0) || bpf_skb_load_bytes(skb, at, check, 2))
			return REFUSED;
		return REWRITTEN;
	}
	if (bpf_l4_csum_replace(skb, at, 0, x->addresses, BPF_F_PSEUDO_HDR) || load(skb, at - 2, &after, 1))
		return REFUSED;
	*check = after >> 16; /* the upper half in memory order */
	if (*check != unfinished)
		*check = ~fold((__u64)(__u16)~*check + others);
	return REWRITTEN;
}

static __always_inline int translate_echo(const struct transport *t, struct translation *x, __be16 *h)
{
	__u64 sum = (__u16)~h[1];

	if (t->proto == PROTO_ICMP6) {
		sum += x->addresses;
		x->whole = fold((__u64)x->whole + (__u16)~x->addresses);
	}
	if (t->frag == WHOLE) { /* else the id is not in the key */
		sum += (__u64)x->sport + (__u16)~h[2];
		h[2] = x->sport;
	}
	h[1] = ~fold(sum);
	return REWRITTEN;
}

/* translate_datagram changes the header of UDP and its like. The helper takes every checksum for unfinished as long as
 * the hardware is to finish one. That may be one further in, behind the outer headers of a workload's own tunnel, and the
 * one here finished. So the helper is asked only if the field holds the sum of the pseudo-header. */
static __always_inline int translate_datagram(struct __sk_buff *skb, const struct transport *t, struct translation *x,
					      __be16 *h, __u16 ports)
{
	const int zero_is_none = t->proto != PROTO_DCCP;

	if (!h[3] && zero_is_none) {
		x->whole = fold((__u64)x->whole + ports);
		return REWRITTEN;
	}
	if (h[3] == fold((__u64)x->before + bpf_htons(t->proto) + h[2])) {
		if (mend(skb, t->offset + 6, x, ports, &h[3]))
			return REFUSED;
	} else {
		h[3] = ~fold((__u64)(__u16)~h[3] + x->addresses + ports);
		x->whole = fold((__u64)x->whole + (__u16)~x->addresses);
	}
	if (!h[3] && zero_is_none)
		h[3] = 0xffff;
	return REWRITTEN;
}

/* translate reads the transport header and changes what it has read; words are what is to be written. */
static __noinline int translate(struct __sk_buff *skb, const struct transport *t, struct translation *x, __be32 *words)
{
	__be16 *h = (__be16 *)words;
	__u16 ports = UNCHANGED;

	if (load(skb, t->offset, words, OTHER_WORDS))
		return REFUSED;
	if (t->proto == IPPROTO_ICMP || t->proto == PROTO_ICMP6)
		return translate_echo(t, x, h);
	if (t->frag == WHOLE) { /* else they are not in the key */
		ports = fold((__u64)x->sport + x->dport + (__u16)~h[0] + (__u16)~h[1]);
		h[0] = x->sport;
		h[1] = x->dport;
	}
	if (t->proto != IPPROTO_TCP)
		return translate_datagram(skb, t, x, h, ports);
	if (load(skb, t->offset + OTHER_WORDS * 4, words + OTHER_WORDS, TCP_WORDS - OTHER_WORDS))
		return REFUSED;
	return mend(skb, t->offset + 16, x, ports, &h[8]);
}

/* store writes link-layer and IP headers, and the transport header unless its checksum_at is 0: in one call if it follows
 * them in the packet as it does in memory. */
static __always_inline int store(struct __sk_buff *skb, const void *head, const __u32 size, const __be32 *words,
				 __u32 offset, __u32 checksum_at)
{
	long err;

	if (!checksum_at)
		err = bpf_skb_store_bytes(skb, 0, head, size, 0);
	else if (offset != size)
		err = bpf_skb_store_bytes(skb, 0, head, size, 0) ||
		      (checksum_at == 16 ? bpf_skb_store_bytes(skb, offset, words, TCP_WORDS * 4, 0) :
					   bpf_skb_store_bytes(skb, offset, words, OTHER_WORDS * 4, 0));
	else if (checksum_at == 16)
		err = bpf_skb_store_bytes(skb, 0, head, size + TCP_WORDS * 4, 0);
	else
		err = bpf_skb_store_bytes(skb, 0, head, size + OTHER_WORDS * 4, 0);
	return err ? REFUSED : REWRITTEN;
}

/* rewrite4 gives the frame the headers of its flow. The sum over an IPv4 header is always the same, so that it does not
 * change a checksum over the whole packet, as hardware gives. It is global, as rewrite6, so that the verifier checks it
 * once, not once for each path that leads to it: the programs then load in an eighth of the time. */
__noinline int rewrite4(struct __sk_buff *skb, const struct flow4 *f, const struct transport *t)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 at;
	struct translation x = {.whole = UNCHANGED};
	struct {
		__u16 align;
		struct ethhdr eth;
		struct iphdr ip;
		__be32 transport[TCP_WORDS];
	} head;
	const __u32 size = ETH_HLEN + sizeof(head.ip);

	if (!f || !t) /* the verifier does not know the callers */
		return REFUSED;
	at = f->common.kind & TRANSLATES ? checksum_at(t) : 0;
	if (at && is_cut_short(t))
		return CUT_SHORT;
	if (data + size > end)
		return REFUSED;
	x.sport = f->to.sport;
	x.dport = f->to.dport;
	head.eth.h_proto = ((struct ethhdr *)data)->h_proto;
	head.ip = *(struct iphdr *)(data + ETH_HLEN);
	x.before = fold((__u64)head.ip.saddr + head.ip.daddr);
	x.addresses = fold((__u64)f->to.saddr + f->to.daddr + (__u16)~x.before);
	__builtin_memcpy(&head.eth, f->to.dmac, 12);
	head.ip.saddr = f->to.saddr;
	head.ip.daddr = f->to.daddr;
	head.ip.ttl -= hops_of(&f->common);
	/* The TTL is the lower byte of its word. */
	head.ip.check = ~fold((__u64)(__u16)~head.ip.check + x.addresses + (__u16)~hops_of(&f->common));
	if (at && translate(skb, t, &x, head.transport))
		return REFUSED;
	if (x.whole != UNCHANGED)
		bpf_csum_update(skb, x.whole); /* an error: there is none */
	return store(skb, &head.eth, size, head.transport, t->offset, at);
}

static __always_inline __u64 sum_of(const __be32 *address)
{
	return (__u64)address[0] + address[1] + address[2] + address[3];
}

/* rewrite6 is rewrite4 for IPv6, the header of which has no checksum: its changes change one over the whole packet. */
__noinline int rewrite6(struct __sk_buff *skb, const struct flow6 *f, const struct transport *t)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 at;
	__u16 hops;
	struct translation x = {};
	struct {
		__u16 align;
		struct ethhdr eth;
		struct ipv6hdr ip;
		__be32 transport[TCP_WORDS];
	} head;
	const __u32 size = ETH_HLEN + sizeof(head.ip);

	if (!f || !t) /* the verifier does not know the callers */
		return REFUSED;
	at = f->common.kind & TRANSLATES ? checksum_at(t) : 0;
	if (at && is_cut_short(t))
		return CUT_SHORT;
	if (data + size > end)
		return REFUSED;
	x.sport = f->to.sport;
	x.dport = f->to.dport;
	hops = hops_of(&f->common) << 8; /* the hop limit is the upper byte of its word */
	head.eth.h_proto = ((struct ethhdr *)data)->h_proto;
	head.ip = *(struct ipv6hdr *)(data + ETH_HLEN);
	x.before = fold(sum_of(head.ip.saddr.s6_addr32) + sum_of(head.ip.daddr.s6_addr32));
	x.addresses = fold(sum_of(f->to.saddr) + sum_of(f->to.daddr) + (__u16)~x.before);
	x.whole = fold((__u64)x.addresses + (__u16)~hops);
	__builtin_memcpy(&head.eth, f->to.dmac, 12);
	__builtin_memcpy(&head.ip.saddr, f->to.saddr, 32);
	head.ip.hop_limit -= hops_of(&f->common);
	if (at && translate(skb, t, &x, head.transport))
		return REFUSED;
	if (x.whole != UNCHANGED)
		bpf_csum_update(skb, x.whole);
	return store(skb, &head.eth, size, head.transport, t->offset, at);
}

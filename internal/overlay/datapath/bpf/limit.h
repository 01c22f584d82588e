/* Limits of rate, and marks: see limits.go for how a bucket counts. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include "maps.h"

#define NANOSECONDS 1000000000ull
#define ECN_BITS 3 /* of the byte with the DSCP */

/* headers returns the length of those that each piece of an offload frame repeats, from the IP header on. Behind an
 * IPv6 extension header it misses some bytes. */
static __always_inline __u32 headers(struct __sk_buff *skb)
{
	__be16 type = 0;
	__u32 bytes;
	__u8 b = 0, proto = 0;

	if (bpf_skb_load_bytes(skb, __builtin_offsetof(struct ethhdr, h_proto), &type, sizeof(type)))
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &b, 1) ||
		    bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, protocol), &proto, 1))
			return 0;
		bytes = (b & 15) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct ipv6hdr, nexthdr), &proto, 1))
			return 0;
		bytes = sizeof(struct ipv6hdr);
	} else {
		return 0;
	}
	if (proto != IPPROTO_TCP)
		return bytes + 8;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + bytes + 12, &b, 1))
		return 0;
	return bytes + (b >> 4) * 4;
}

/* wire_bytes returns the bytes of the frame's IP packets as they will be on the wire, and how many packets. What the
 * metadata says about pieces is not asked: a machine may have written it. */
static __noinline __u32 wire_bytes(struct __sk_buff *skb, __u32 *packets)
{
	__u32 bytes = skb->len - ETH_HLEN, piece = skb->gso_size, repeated;

	*packets = 1;
	if (!piece)
		return bytes;
	repeated = headers(skb);
	if (bytes > repeated)
		*packets = (bytes - repeated + piece - 1) / piece;
	return bytes + (*packets - 1) * repeated;
}

/* due_of returns since when the bucket has had tokens, or when it will have: `due`, unless the tokens since then are more
 * than it holds: then it takes the surplus away. */
static __always_inline __s64 due_of(struct bucket *b, __s64 now)
{
	__s64 due = b->due, full = now - b->depth;

	if (due >= full)
		return due;
	__sync_val_compare_and_swap(&b->due, due, full); /* another core may have done it: all the better */
	return full;
}

static __always_inline void take(struct bucket *b, __u64 amount)
{
	__sync_fetch_and_add(&b->due, amount * NANOSECONDS / b->rate);
}

/* pass_limit takes the frame's tokens and returns 0, or the time at which it may leave. A frame that would wait longer
 * than the limit lets it takes none, and is refused: -1. */
static __noinline __s64 pass_limit(struct __sk_buff *skb, __u32 number)
{
	struct limit *l = bpf_map_lookup_elem(&limits, &number);
	__s64 now = bpf_ktime_get_ns(), due = now, other;
	__u32 packets = 1, bytes;

	if (!l)
		return 0;
	bytes = wire_bytes(skb, &packets);
	if (l->bits.rate)
		due = due_of(&l->bits, now);
	if (l->packets.rate) {
		other = due_of(&l->packets, now);
		if (other > due)
			due = other;
	}
	if (due - now > (__s64)l->max_wait) {
		__sync_fetch_and_add(&l->dropped, packets);
		return -1;
	}
	if (l->bits.rate)
		take(&l->bits, (__u64)bytes * 8);
	if (l->packets.rate)
		take(&l->packets, packets);
	if (due <= now)
		return 0;
	__sync_fetch_and_add(&l->delayed, packets);
	return due;
}

/* admits_flow asks the limits of a flow: up to two numbers in a word. */
static __always_inline int admits_flow(struct __sk_buff *skb, __u32 numbers)
{
	__u32 first = numbers & 0xffff, second = numbers >> 16;

	return pass_limit(skb, first) == 0 && (!second || pass_limit(skb, second) == 0);
}

/* mark writes a DSCP into the frame's IP header. A frame that is cut short goes on as it came. */
static __always_inline int mark(struct __sk_buff *skb, __u8 dscp)
{
	__be16 type, was, is;

	if (bpf_skb_load_bytes(skb, __builtin_offsetof(struct ethhdr, h_proto), &type, sizeof(type)) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &was, sizeof(was)))
		return 0;
	/* version, IHL, DSCP and ECN; or version, DSCP, ECN and the first bits of the flow label */
	if (type == bpf_htons(ETH_P_IP)) {
		is = bpf_htons((bpf_ntohs(was) & (0xff00 | ECN_BITS)) | dscp << 2);
		if (is == was)
			return 0;
		return bpf_l3_csum_replace(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, check), was, is, sizeof(is)) ||
		       bpf_skb_store_bytes(skb, ETH_HLEN, &is, sizeof(is), 0);
	}
	if (type != bpf_htons(ETH_P_IPV6))
		return 0;
	is = bpf_htons((bpf_ntohs(was) & (0xf00f | ECN_BITS << 4)) | dscp << 6);
	return is != was && bpf_skb_store_bytes(skb, ETH_HLEN, &is, sizeof(is), BPF_F_RECOMPUTE_CSUM);
}

/* limited_of returns the limits of the port that a frame at an interface is of: those of a subport by its tag. */
static __always_inline struct limited *limited_of(struct __sk_buff *skb)
{
	struct lan_key key = {.ifindex = skb->ifindex, .vlan = skb->vlan_present ? skb->vlan_tci & 0xfff : 0};
	struct limited *l = bpf_map_lookup_elem(&limited, &key);

	if (l || !key.vlan)
		return l;
	key.vlan = 0;
	l = bpf_map_lookup_elem(&limited, &key);
	return l && !l->trunk ? l : NULL;
}

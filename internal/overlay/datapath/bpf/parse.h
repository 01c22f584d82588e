/* From a frame to the exact headers by which its flow is found. Lengths in the frame come from a workload and may be
 * anything: nothing is read that was not checked to be there. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "maps.h"

#define PROTO_DCCP 33
#define PROTO_ICMP6 58
#define PROTO_SCTP 132
#define PROTO_UDPLITE 136
#define MAX_EXTENSIONS 6
#define TRANSPORT_BYTES 20 /* of a transport header are read at most */
#define TCP_FLAGS 13	   /* where they are in its header */
#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

enum parsed { HAS_KEY, HAS_NO_KEY, IS_MALFORMED };

/* What the key's protocol needs of its header for the key. Also where that header is. */
struct transport {
	__u32 offset; /* in the frame */
	__u32 room;   /* bytes of IP payload from there on */
	__u8 proto;
	__u8 frag;
	__u8 tcp_flags; /* of a whole TCP packet */
	__u8 options; /* IPv4 options, or an IPv6 routing header of type 0: routers may refuse the packet */
};

/* pull_headers makes sure that the headers parse4 and parse6 read lie in the packet's linear part, if they are there at
 * all. They nearly always do, and pulling copies: so it asks for no more than they need. */
static __always_inline void pull_headers(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	__u32 need = ETH_HLEN + sizeof(struct iphdr) + TRANSPORT_BYTES;

	if ((void *)(eth + 1) + 1 <= end) {
		if (eth->h_proto == bpf_htons(ETH_P_IPV6))
			need = ETH_HLEN + sizeof(struct ipv6hdr) + TRANSPORT_BYTES;
		else
			need = ETH_HLEN + (*(__u8 *)(eth + 1) & 15) * 4 + TRANSPORT_BYTES;
	}
	if (data + need <= end || end - data == skb->len)
		return;
	bpf_skb_pull_data(skb, need < skb->len ? need : skb->len);
}

/* has_ports says whether the first 8 bytes of the transport header are part of the key. */
static __always_inline int has_ports(const struct transport *t)
{
	if (t->frag != WHOLE)
		return 0;
	switch (t->proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case PROTO_SCTP:
	case PROTO_DCCP:
	case PROTO_UDPLITE:
	case IPPROTO_ICMP:
	case PROTO_ICMP6:
		return 1;
	}
	return 0;
}

/* end_points reads the ports of the key from the first 8 bytes h of the transport header: for echo its id and type. */
static __always_inline int end_points(const __u8 *h, __u8 proto, __be16 *sport, __be16 *dport)
{
	if (proto != IPPROTO_ICMP && proto != PROTO_ICMP6) {
		*sport = *(const __be16 *)h;
		*dport = *(const __be16 *)(h + 2);
		return HAS_KEY;
	}
	if (proto == IPPROTO_ICMP ? h[0] != 0 && h[0] != 8 : h[0] != 128 && h[0] != 129)
		return HAS_NO_KEY;
	*sport = *(const __be16 *)(h + 4);
	*dport = *(const __be16 *)h;
	return HAS_KEY;
}

/* has_bad_tcp reports whether the TCP header h, up to its flags at hand or not, does not fit the room for it. */
static __always_inline int has_bad_tcp(const __u8 *h, const void *end, __u32 room)
{
	__u32 size;

	if ((const void *)h + TCP_FLAGS + 1 > end)
		return 1;
	size = (h[12] >> 4) * 4;
	return size < 20 || size > room;
}

static __always_inline int parse4(struct __sk_buff *skb, struct key4 *k, struct transport *t)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 header, total;
	__u8 *h;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return IS_MALFORMED;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (total == 0 && skb->gso_size) /* larger than the field can say */
		total = skb->len - ETH_HLEN;
	if (total < header || total + ETH_HLEN > skb->len)
		return IS_MALFORMED;
	k->saddr = ip->saddr;
	k->daddr = ip->daddr;
	k->proto = t->proto = ip->protocol;
	t->frag = WHOLE;
	if (ip->frag_off & bpf_htons(0x3fff))
		t->frag = ip->frag_off & bpf_htons(0x1fff) ? LATER_FRAG : FIRST_FRAG;
	k->frag = t->frag;
	t->options = header > sizeof(*ip);
	t->offset = ETH_HLEN + header;
	t->room = total - header;
	if (!has_ports(t))
		return HAS_KEY;
	h = data + t->offset;
	if (t->room < 8 || (void *)h + 8 > end)
		return IS_MALFORMED;
	if (t->proto == IPPROTO_TCP) {
		if (has_bad_tcp(h, end, t->room))
			return IS_MALFORMED;
		t->tcp_flags = h[TCP_FLAGS];
	}
	return end_points(h, t->proto, &k->sport, &k->dport);
}

/* extensions walks over IPv6 extension headers until t names the protocol behind them. */
static __noinline int extensions(struct __sk_buff *skb, struct transport *t)
{
	__u8 h[8];

#pragma unroll
	for (int i = 0; i < MAX_EXTENSIONS + 1; i++) {
		__u32 size;
		switch (t->proto) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
		case 135: /* mobility */
		case IPPROTO_AH:
		case IPPROTO_FRAGMENT:
			break;
		default:
			return HAS_KEY;
		}
		if (i == MAX_EXTENSIONS || t->room < 8 || bpf_skb_load_bytes(skb, t->offset, h, 8) < 0)
			return IS_MALFORMED;
		size = 8 + h[1] * 8;
		if (t->proto == IPPROTO_AH)
			size = 8 + h[1] * 4;
		if (t->proto == IPPROTO_FRAGMENT) {
			size = 8;
			if (h[2] || h[3] & 0xf9) /* an offset, or more to come: else the datagram is whole */
				t->frag = h[2] || h[3] & 0xf8 ? LATER_FRAG : FIRST_FRAG;
		}
		if (size > t->room)
			return IS_MALFORMED;
		if (t->proto == IPPROTO_ROUTING && h[2] == 0)
			t->options = 1;
		t->proto = h[0];
		t->offset += size;
		t->room -= size;
		if (t->frag == LATER_FRAG) /* what follows is not a header */
			return HAS_KEY;
	}
	return IS_MALFORMED;
}

static __always_inline int parse6(struct __sk_buff *skb, struct key6 *k, struct transport *t)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip = data + ETH_HLEN;
	__u32 payload;
	__u8 *h, far[TCP_FLAGS + 1];
	int err;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return IS_MALFORMED;
	payload = bpf_ntohs(ip->payload_len);
	if (payload == 0 && skb->gso_size)
		payload = skb->len - ETH_HLEN - sizeof(*ip);
	if (payload + ETH_HLEN + sizeof(*ip) > skb->len)
		return IS_MALFORMED;
	__builtin_memcpy(k->saddr, &ip->saddr, 32);
	t->proto = ip->nexthdr;
	t->frag = WHOLE;
	t->offset = ETH_HLEN + sizeof(*ip);
	t->room = payload;
	h = data + ETH_HLEN + sizeof(*ip);
	if (t->proto == IPPROTO_TCP || t->proto == IPPROTO_UDP || t->proto == PROTO_ICMP6) {
		if (payload < 8 || (void *)h + 8 > end)
			return IS_MALFORMED;
		if (t->proto == IPPROTO_TCP) {
			if (has_bad_tcp(h, end, payload))
				return IS_MALFORMED;
			t->tcp_flags = h[TCP_FLAGS];
		}
		k->proto = t->proto;
		k->frag = WHOLE;
		return end_points(h, t->proto, &k->sport, &k->dport);
	}
	err = extensions(skb, t);
	if (err)
		return err;
	k->proto = t->proto;
	k->frag = t->frag;
	if (!has_ports(t))
		return HAS_KEY;
	if (t->room < 8 || bpf_skb_load_bytes(skb, t->offset, far, 8))
		return IS_MALFORMED;
	if (t->proto == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(skb, t->offset, far, sizeof(far)) || has_bad_tcp(far, far + sizeof(far), t->room))
			return IS_MALFORMED;
		t->tcp_flags = far[TCP_FLAGS];
	}
	return end_points(far, t->proto, &k->sport, &k->dport);
}

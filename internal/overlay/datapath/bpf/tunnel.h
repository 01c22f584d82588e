/* Who may send through tunnels to this host: the secret of a pair of hosts, and the hosts that a port's frames come from
 * (docs/decisions/0008). */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include "maps.h"

#define VXLAN_HAS_KEY 0x08000000

/* Marks that a packet carries between a program and the kernel's vxlan device, and nowhere else: what comes from another
 * network namespace has lost its mark, and setting one takes CAP_NET_ADMIN. */
#define MARK_ACCEPTED 0x00061a15 /* from_underlay has checked it */
#define MARK_STAMP 0x00061a16	 /* to_underlay has to write the secret */

#define TCX_NEXT -1
#define TCX_PASS 0
#define TCX_DROP 2

struct vxlan {
	__be32 flags, vni;
};

struct outer {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct vxlan vxlan;
} __attribute__((packed));

/* What from_underlay reads behind the outer UDP header, in one call. */
struct inner {
	struct vxlan vxlan;
	__u8 macs[12];
	__be16 proto;
};

#define INNER_BYTES (sizeof(struct vxlan) + ETH_HLEN)

static __always_inline __be32 secret_flags(__u32 secret)
{
	return bpf_htonl(secret >> 8);
}

static __always_inline __be32 secret_vni(__u32 secret)
{
	return bpf_htonl(secret & 0xff);
}

static __always_inline int has_secret(const struct peer *p, const struct vxlan *v)
{
	__u32 secret = bpf_ntohl(v->flags) << 8 | (bpf_ntohl(v->vni) & 0xff);

	return secret == p->accept[0] || secret == p->accept[1] || secret == p->accept[2] || secret == p->accept[3];
}

/* may_send says whether the peer has a port in the network of the port with that number. */
static __always_inline int may_send(const struct peer *p, __u32 number)
{
	__u32 port = INDEX(number), i = p->index & (MAX_PEERS - 1);
	struct senders *s = bpf_map_lookup_elem(&senders, &port);

	return s && s->peers[i / 32] >> (i % 32) & 1;
}

/* to_kernel hands an accepted frame to the kernel's vxlan device, which refuses reserved bits. at is where its VXLAN header
 * lies. */
static __always_inline int to_kernel(struct __sk_buff *skb, const struct vxlan *v, __u32 at)
{
	struct vxlan plain = {.flags = bpf_htonl(VXLAN_HAS_KEY), .vni = v->vni & bpf_htonl(0xffffff00)};

	if ((plain.flags != v->flags || plain.vni != v->vni) &&
	    bpf_skb_store_bytes(skb, at, &plain, sizeof(plain), BPF_F_RECOMPUTE_CSUM)) {
		count(DROP_KERNEL);
		return TCX_DROP;
	}
	skb->mark = MARK_ACCEPTED;
	return TCX_NEXT;
}

static __noinline int stamp(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	struct outer o;
	struct peer *p;

	skb->mark = 0;
	if (!c || bpf_skb_load_bytes(skb, 0, &o, sizeof(o)) || o.eth.h_proto != bpf_htons(ETH_P_IP) || o.ip.ihl != 5 ||
	    o.ip.protocol != IPPROTO_UDP || o.udp.dest != c->tunnel_port)
		return TCX_NEXT;
	p = bpf_map_lookup_elem(&peers, &o.ip.daddr);
	if (!p)
		return TCX_NEXT;
	o.vxlan.flags |= secret_flags(p->secret);
	o.vxlan.vni |= secret_vni(p->secret);
	if (bpf_skb_store_bytes(skb, __builtin_offsetof(struct outer, vxlan), &o.vxlan, sizeof(o.vxlan), 0)) {
		count(DROP_KERNEL);
		return TCX_DROP;
	}
	/* The kernel's vxlan device goes by the routes, which lead into the clear. */
	return p->wireguard ? bpf_redirect(p->wireguard, 0) : TCX_NEXT;
}

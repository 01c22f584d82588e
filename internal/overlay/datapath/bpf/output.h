/* Where a frame leaves: to a workload, into a tunnel, up to the agent. */
#pragma once

#include <asm/errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include "maps.h"
#include "tunnel.h"

#define ADJ_ROOM_NO_CSUM_RESET (1 << 5)
#define ADJ_ROOM_DECAP_L3_IPV6 (1 << 8) /* newer than the headers this is built with */
#define ENCAP_FLAGS                                                                                                    \
	(BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |                       \
	 BPF_F_ADJ_ROOM_ENCAP_L2_ETH | ADJ_ROOM_NO_CSUM_RESET)

#define FIXED_OUTER_PORT 0xc000 /* UDP source of tunnelled frames that belong to no flow */

static __always_inline int dropped(__u32 why)
{
	count(why);
	return TCX_DROP;
}

/* tag puts a VLAN tag beside the frame, which the kernel or the hardware writes into it; one that is there already goes
 * into the frame. tci is 0 for none. */
static __always_inline int tag(struct __sk_buff *skb, __u16 tci)
{
	return tci ? bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), tci & 0xfff) : 0;
}

/* to_port delivers to a workload, or to the LAN of a localnet port. in_sync says that the packet's metadata tells the
 * frame's ethertype: only then may it skip the host end, because crossing that end is what sets the ethertype anew. */
static __always_inline int to_port(struct __sk_buff *skb, const struct port *p, int in_sync)
{
	if (skb->pkt_type == PACKET_OTHERHOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	if (p->kind == PORT_VETH && in_sync)
		return bpf_redirect_peer(p->out, 0);
	if (tag(skb, p->vlan))
		return dropped(DROP_KERNEL);
	return bpf_redirect(p->out, 0);
}

/* to_vxlan_device is the way into a tunnel for what may not be encapsulated here: a frame of a tunnel that the workload
 * has built itself. The kernel's device does it, at twice the cost. */
static __noinline int to_vxlan_device(struct __sk_buff *skb, const struct tunnel *t, __be32 vni)
{
	struct bpf_tunnel_key key = {
		.tunnel_id = bpf_ntohl(vni) >> 8,
		.remote_ipv4 = bpf_ntohl(*(const __be32 *)(t->outer + 30)),
		.tunnel_ttl = 64,
	};
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);

	if (!c || bpf_skb_set_tunnel_key(skb, &key, sizeof(key), BPF_F_ZERO_CSUM_TX | BPF_F_DONT_FRAGMENT))
		return dropped(DROP_KERNEL);
	skb->mark = MARK_STAMP; /* the device leaves the reserved bits 0: to_underlay writes the secret */
	return bpf_redirect(c->vxlan, 0);
}

/* encapsulate writes the outer headers, 50 bytes with lengths, IP checksum and UDP source left 0, in front of the frame,
 * whose MAC header moves behind them. It returns -EALREADY, and the frame as it was, if the sender has built a tunnel
 * already. No program here writes to the packet directly: for one that does, the kernel copies the head of every packet
 * that TCP still holds for retransmission, before the program has even looked at it. */
static __always_inline long encapsulate(struct __sk_buff *skb, const __u8 *outer, __u32 ip_sum, __be32 flags, __be32 vni,
					__be16 outer_port)
{
	struct {
		struct outer outer; /* 50 bytes */
		__u8 macs[12];
		__be16 proto; /* the inner frame's type, or that of its tag with what stands behind */
		__be16 tci, tagged;
	} __attribute__((packed)) head;
	__u32 inner_len = skb->len, room = OUTER_BYTES, total, sum;
	__u64 how = ENCAP_FLAGS | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN);
	long err;

	__builtin_memcpy(&head, outer, OUTER_BYTES);
	if (bpf_skb_load_bytes(skb, 0, head.macs, ETH_HLEN))
		return -EINVAL;
	head.tci = head.tagged = 0;
	if (skb->vlan_present) { /* the tag lies beside the frame: inside the tunnel it must be part of it */
		head.tagged = head.proto;
		head.proto = skb->vlan_proto;
		head.tci = bpf_htons(skb->vlan_tci);
		if (bpf_skb_vlan_pop(skb))
			return -EINVAL;
		room += 4;
		inner_len += 4;
		how = ENCAP_FLAGS | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN + 4);
	}
	err = bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, how);
	if (err)
		return err == -EALREADY && room == OUTER_BYTES ? err : -EINVAL;

	total = inner_len + OUTER_BYTES - ETH_HLEN;
	if (total > 0xffff) /* only an offload frame can be: whoever cuts it writes the true lengths */
		total = 0xffff;
	head.outer.ip.tot_len = bpf_htons(total);
	sum = ip_sum + head.outer.ip.tot_len;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	head.outer.ip.check = ~sum;
	head.outer.udp.source = outer_port;
	head.outer.udp.len = bpf_htons(total - sizeof(struct iphdr));
	head.outer.vxlan.flags |= flags;
	head.outer.vxlan.vni |= vni;
	if (room == OUTER_BYTES)
		return bpf_skb_store_bytes(skb, 0, &head, OUTER_BYTES + ETH_HLEN, 0);
	return bpf_skb_store_bytes(skb, 0, &head, OUTER_BYTES + ETH_HLEN + 4, 0);
}

/* to_tunnel packs the frame and leaves by the underlay's interface. */
static __always_inline int to_tunnel(struct __sk_buff *skb, const struct tunnel *t, __be32 vni, __be16 outer_port)
{
	long err = encapsulate(skb, t->outer, t->ip_sum, secret_flags(t->secret), vni | secret_vni(t->secret), outer_port);

	if (err == -EALREADY)
		return to_vxlan_device(skb, t, vni);
	return err ? dropped(DROP_KERNEL) : bpf_redirect(t->ifindex, 0);
}

static __always_inline const struct framing *find_framing(__u32 number)
{
	return bpf_map_lookup_elem(&framings, &number);
}

/* frame gives the frame what a framing puts around it. It is global, so that the verifier checks it once. */
__noinline int frame(struct __sk_buff *skb, __u32 number, __u32 outer_port)
{
	const struct framing *g = find_framing(number);

	if (!g || (g->pops && bpf_skb_vlan_pop(skb)) || tag(skb, g->tci))
		return -1;
	if (!g->wraps)
		return 0;
	if (encapsulate(skb, g->outer, g->ip_sum, 0, 0, outer_port))
		return -1;
	count(COUNT_VTEP_OUT);
	return 0;
}

/* strip takes the first `bytes` bytes away: the frame that follows them moves its MAC header to the front. */
static __always_inline int strip(struct __sk_buff *skb, __s32 bytes, __u64 flags, __be16 *proto)
{
	__u8 eth[ETH_HLEN];

	if (bpf_skb_load_bytes(skb, bytes, eth, ETH_HLEN) || bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_MAC, flags) ||
	    bpf_skb_store_bytes(skb, 0, eth, ETH_HLEN, 0))
		return -1;
	__builtin_memcpy(proto, eth + 12, 2);
	return 0;
}

/* take_credits lets a port have so many upcalls waiting and no more: a port that floods waits for itself. */
static __always_inline int take_credits(__u32 port, __u32 cost, const struct config *c)
{
	__u32 zero = 0, index = INDEX(port);
	struct credit *all = bpf_map_lookup_elem(&credits, &zero);
	struct credit *own = bpf_map_lookup_elem(&credits, &index);

	if (!all || !own)
		return DROP_NO_PORT;
	if ((__s32)(own->taken - own->given) >= (__s32)c->port_credits)
		return DROP_PORT_CREDITS;
	if ((__s32)(all->taken - all->given) >= (__s32)c->total_credits)
		return DROP_TOTAL_CREDITS;
	__sync_fetch_and_add(&own->taken, cost);
	__sync_fetch_and_add(&all->taken, cost);
	return 0;
}

static __always_inline void refund(__u32 port, __u32 cost)
{
	__u32 zero = 0, index = INDEX(port);
	struct credit *all = bpf_map_lookup_elem(&credits, &zero);
	struct credit *own = bpf_map_lookup_elem(&credits, &index);

	if (all)
		__sync_fetch_and_sub(&all->taken, cost);
	if (own)
		__sync_fetch_and_sub(&own->taken, cost);
}

/* is_large says whether the frame is more than a record of the ring can hold: also the segmentation left to hardware. */
static __always_inline int is_large(struct __sk_buff *skb)
{
	return skb->len > UPCALL_BYTES || skb->gso_size;
}

struct small_record {
	struct upcall meta;
	__u8 frame[UPCALL_SMALL];
};

struct large_record {
	struct upcall meta;
	__u8 frame[UPCALL_BYTES];
};

/* to_ring copies the frame from byte `from` on, as much as a record holds, into the ring. */
static __noinline int to_ring(struct __sk_buff *skb, struct upcall *meta, __u32 from)
{
	__u32 n = skb->len;

	if (n <= from)
		return DROP_BAD_TUNNEL;
	n -= from;
	meta->length = n;
	if (n <= UPCALL_SMALL) {
		struct small_record *r = bpf_ringbuf_reserve(&upcalls, sizeof(*r), 0);
		if (!r)
			return DROP_RING_FULL;
		meta->captured = n;
		r->meta = *meta;
		asm volatile("" : "+r"(n)); /* keep the bound that the verifier is to see */
		if (n < 1 || n > UPCALL_SMALL || bpf_skb_load_bytes(skb, from, r->frame, n)) {
			bpf_ringbuf_discard(r, 0);
			return DROP_KERNEL;
		}
		bpf_ringbuf_submit(r, 0);
		return 0;
	}
	struct large_record *r = bpf_ringbuf_reserve(&upcalls, sizeof(*r), 0);
	if (!r)
		return DROP_RING_FULL;
	if (n > UPCALL_BYTES)
		n = UPCALL_BYTES;
	meta->captured = n;
	r->meta = *meta;
	asm volatile("" : "+r"(n));
	if (n < 1 || n > UPCALL_BYTES || bpf_skb_load_bytes(skb, from, r->frame, n)) {
		bpf_ringbuf_discard(r, 0);
		return DROP_KERNEL;
	}
	bpf_ringbuf_submit(r, 0);
	return 0;
}

#define SMALL_CREDITS 1
#define GIANT_CREDITS 4 /* for a frame of up to 64 KB */

/* to_agent gives a frame up. whole says that the agent will want to send it on exactly as it is: then it goes through
 * the tap, which keeps length, segmentation and an unfinished checksum. */
static __noinline int to_agent(struct __sk_buff *skb, __u32 port, __u8 reason, int whole)
{
	__u32 zero = 0, cost = whole && skb->len > UPCALL_BYTES ? GIANT_CREDITS : SMALL_CREDITS;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	__be16 vlan_proto = skb->vlan_present ? skb->vlan_proto : 0;
	int err;

	if (!c)
		return dropped(DROP_NO_PORT);
	err = take_credits(port, cost, c);
	if (err)
		return dropped(err);
	if (!whole) {
		struct upcall meta = {
			.port = port,
			.vlan_proto = vlan_proto,
			.vlan_tci = skb->vlan_tci,
			.reason = reason,
		};
		err = to_ring(skb, &meta, 0);
		if (err) {
			refund(port, cost);
			return dropped(err);
		}
		count(COUNT_UPCALL);
		return TCX_DROP;
	}
	struct tap_upcall head = {
		.port = port,
		.vlan_proto = vlan_proto,
		.vlan_tci = skb->vlan_tci,
		.reason = reason,
		.magic = TAP_MAGIC,
		.magic_tail = TAP_MAGIC_TAIL,
		.proto = skb->protocol,
	};
	if ((vlan_proto && bpf_skb_vlan_pop(skb)) || bpf_skb_change_head(skb, sizeof(head), 0) ||
	    bpf_skb_store_bytes(skb, 0, &head, sizeof(head), 0)) {
		refund(port, cost);
		return dropped(DROP_KERNEL);
	}
	count(COUNT_UPCALL);
	return bpf_redirect(c->tap, 0);
}

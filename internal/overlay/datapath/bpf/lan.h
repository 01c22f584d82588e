/* Frames to many that come from a physical network: the agent gets copies, no more of them than suit a LAN, so that a
 * broadcast storm there does not keep it from its work. */
#pragma once

#include <linux/if_ether.h>

#include "maps.h"
#include "output.h"

#define SECOND 1000000000ULL
#define DISCOVERY_RATE 2000 /* a second, of one VLAN */
#define OTHER_MANY_RATE 1000
#define MANY_BURST (SECOND / 4) /* as much of the rate may come at once */

/* many_of returns the kind of a frame to many: without the discovery of neighbours and routers a LAN does not work, so
 * streams of other kinds do not use its share up. */
static __always_inline __u32 many_of(struct __sk_buff *skb, const __u8 *dst)
{
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return DISCOVERY;
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || dst[0] != 0x33 || dst[1] != 0x33)
		return OTHER_MANY;
	/* To a solicited node, all nodes, all routers. */
	return dst[2] == 0xff || (!dst[2] && !dst[3] && !dst[4] && dst[5] <= 2) ? DISCOVERY : OTHER_MANY;
}

/* admit reports whether another frame of the kind may go up. Processors that do so at once may each let one more in. */
static __always_inline int admit(struct lan *l, __u32 kind)
{
	__u64 now = bpf_ktime_get_coarse_ns(), next;

	if (kind >= MANY_KINDS)
		return 0;
	next = l->next[kind];
	if (next > now + MANY_BURST)
		return 0;
	l->next[kind] = (next > now ? next : now) + SECOND / (kind == DISCOVERY ? DISCOVERY_RATE : OTHER_MANY_RATE);
	return 1;
}

/* copy_to_agent gives the agent a copy of a frame to many, without the tag of its VLAN. */
static __noinline int copy_to_agent(struct __sk_buff *skb, struct lan *l, const __u8 *dst)
{
	struct upcall meta = {.reason = NO_KEY};
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	int err;

	if (!c || !l || !dst)
		return DROP_NO_PORT;
	count(COUNT_LAN_IN);
	if (!admit(l, many_of(skb, dst)))
		return dropped(DROP_MANY_RATE);
	if (is_large(skb))
		return dropped(DROP_MANY_LARGE);
	meta.port = l->port;
	err = take_credits(meta.port, SMALL_CREDITS, c);
	if (err)
		return dropped(err);
	err = to_ring(skb, &meta, 0);
	if (err) {
		refund(meta.port, SMALL_CREDITS);
		return dropped(err);
	}
	count(COUNT_UPCALL);
	return 0;
}

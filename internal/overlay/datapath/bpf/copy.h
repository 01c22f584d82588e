/* Copies of a flow's frames for mirrors. Each is a clone, so that the frame itself goes on as without them. A clone that
 * a plain redirect delivers leaves at once; one that needs more, a tag or outer headers, comes in by the agent's tap, whose
 * program does the rest: only a frame of its own may be changed. */
#pragma once

#include "maps.h"
#include "output.h"
#include "parse.h"

/* What a clone carries beside it to the tap's program: see MARK_ACCEPTED for who can set a mark. */
#define MARK_COPY 0x00061a17
#define COPY_OUT 0  /* places in cb */
#define COPY_VNI 1
#define COPY_KIND 2 /* upper half the kind, lower half the UDP source */
#define COPY_FRAMING 3

static __always_inline struct port *find_delivery(__u32 number);
static __always_inline struct port *find_port(__u32 number);
static __always_inline struct tunnel *find_tunnel(__u32 number);
static __noinline int exceeds(struct __sk_buff *skb, __u32 mtu, const struct transport *t);

/* is_too_long says whether the frame does not fit where packets may have mtu bytes, 0: any. */
static __always_inline int is_too_long(struct __sk_buff *skb, __u32 mtu, const struct transport *t)
{
	return mtu && skb->len - ETH_HLEN > mtu && exceeds(skb, mtu, t);
}

/* by_tap clones the frame to the tap's program. */
static __always_inline long by_tap(struct __sk_buff *skb, const struct copy *c, __be16 outer_port)
{
	__u32 zero = 0, mark = skb->mark;
	struct config *conf = bpf_map_lookup_elem(&config, &zero);
	long err;

	if (!conf)
		return -1;
	skb->mark = MARK_COPY;
	skb->cb[COPY_OUT] = c->out;
	skb->cb[COPY_VNI] = c->vni;
	skb->cb[COPY_KIND] = (__u32)c->kind << 16 | outer_port;
	skb->cb[COPY_FRAMING] = c->framing;
	err = bpf_clone_redirect(skb, conf->tap, BPF_F_INGRESS);
	skb->mark = mark;
	return err;
}

/* copy_to sends one copy. */
static __always_inline long copy_to(struct __sk_buff *skb, const struct copy *c, __be16 outer_port, const struct transport *t)
{
	__u32 more = skb->vlan_present ? 4 : 0;
	const struct framing *g;
	struct tunnel *tunnel;
	struct port *p;

	if (c->framing) {
		g = find_framing(c->framing);
		more += g && g->wraps ? OUTER_BYTES : 4;
	}
	if (c->kind == OUT_TUNNEL) {
		tunnel = find_tunnel(c->out);
		if (!tunnel || is_too_long(skb, tunnel->mtu - more, t))
			return -1;
		return by_tap(skb, c, outer_port);
	}
	p = find_port(c->out);
	if (!p || is_too_long(skb, p->mtu && c->framing ? p->mtu - more : p->mtu, t))
		return -1;
	return p->vlan || c->framing ? by_tap(skb, c, outer_port) : bpf_clone_redirect(skb, p->out, 0);
}

/* send_copies sends the copies of the flow that have the headers that the frame has now: those it came with or, if
 * rewritten is not 0, those of the flow. It is global, so that the verifier checks it once. */
__noinline int send_copies(struct __sk_buff *skb, const struct flow *f, const struct transport *t, __u32 rewritten)
{
	struct copies *set;
	__u32 number;

	if (!f || !t) /* the verifier does not know the callers */
		return 0;
	number = f->slots[MAX_TAGS - 1];
	set = bpf_map_lookup_elem(&copies, &number);
	if (!set)
		return 0;
	for (__u32 i = 0; i < MAX_COPIES; i++) {
		const struct copy *c = &set->all[i];
		if (c->kind == OUT_DROP)
			break;
		if (c->rewritten == rewritten)
			count(copy_to(skb, c, f->outer_port, t) ? DROP_COPY : COUNT_COPY);
	}
	return 0;
}

/* deliver_copy carries out what by_tap has noted beside a clone. */
static __always_inline int deliver_copy(struct __sk_buff *skb)
{
	__u32 out = skb->cb[COPY_OUT], kind = skb->cb[COPY_KIND];
	struct tunnel *t;
	struct port *p;

	skb->mark = 0;
	if (skb->cb[COPY_FRAMING] && frame(skb, skb->cb[COPY_FRAMING], kind & 0xffff))
		return dropped(DROP_COPY);
	if (kind >> 16 == OUT_TUNNEL) {
		t = find_tunnel(out);
		return t ? to_tunnel(skb, t, skb->cb[COPY_VNI], kind & 0xffff) : dropped(DROP_COPY);
	}
	p = find_port(out);
	return p ? to_port(skb, p, 1) : dropped(DROP_COPY);
}

// The overlay's programs: see doc.go for where they sit.
#include "arp.h"
#include "copy.h"
#include "lan.h"
#include "limit.h"
#include "maps.h"
#include "output.h"
#include "parse.h"
#include "rewrite.h"

char _license[] SEC("license") = "GPL"; // the kernel asks for it to let a program use the helpers called here

// Makes the ring's record known to the Go side.
const struct upcall *unused_upcall __attribute__((unused));
const struct tap_upcall *unused_tap_upcall __attribute__((unused));
const struct instruction *unused_instruction __attribute__((unused));

static __always_inline __u32 port_of(__u32 ifindex)
{
	__u32 *number;

	if (ifindex < NEAR_INTERFACES)
		number = bpf_map_lookup_elem(&near_ports, &ifindex);
	else
		number = bpf_map_lookup_elem(&far_ports, &ifindex);
	return number ? *number : 0;
}

// find_delivery returns the port with that number, which may have moved to another host.
static __always_inline struct port *find_delivery(__u32 number)
{
	__u32 index = INDEX(number);
	struct port *p = bpf_map_lookup_elem(&ports, &index);

	return p && p->number == number && p->out ? p : NULL;
}

static __always_inline struct port *find_port(__u32 number)
{
	struct port *p = find_delivery(number);

	return p && p->kind < PORT_MOVED ? p : NULL;
}

static __always_inline struct tunnel *find_tunnel(__u32 number)
{
	__u32 index = INDEX(number);
	struct tunnel *t = bpf_map_lookup_elem(&tunnels, &index);

	return t && t->number == number && t->ifindex ? t : NULL;
}

static __always_inline int is_current(const struct flow *f)
{
	const __u8 tags = f->tag_count & TAG_COUNT;

#pragma unroll
	for (int i = 0; i < MAX_TAGS; i++) {
		__u32 slot, *epoch;
		if (i >= tags)
			return 1;
		slot = f->slots[i];
		epoch = bpf_map_lookup_elem(&epochs, &slot);
		if (!epoch || *epoch != f->epochs[i])
			return 0;
	}
	return 1;
}

// begins reports whether the frame may be the first of a new TCP connection with the addresses and ports of an earlier one,
// about which the agent tells other hosts: they may have forgotten the translation already.
static __always_inline int begins(const struct flow *f, __u8 tcp_flags)
{
	return tcp_flags & TCP_SYN && !(tcp_flags & TCP_ACK) && f->tag_count & SHARED;
}

// note_end notes what a frame says about the end of its TCP connection. It writes only when that is news, so that
// processors need not pass the flow's memory on for it.
static __always_inline void note_end(struct flow *f, __u8 tcp_flags)
{
	__u8 noted = f->tag_count & ~RST_LAST;

	if (tcp_flags & TCP_SYN)
		noted = (noted & ~FIN_SEEN) | SYN_SEEN;
	if (tcp_flags & TCP_FIN)
		noted |= FIN_SEEN;
	if (tcp_flags & TCP_RST)
		noted |= RST_LAST;
	if (noted != f->tag_count)
		f->tag_count = noted;
}

// exceeds says whether the frame's IP packet, or each piece that an offload frame will be cut into, is longer than mtu.
static __noinline int exceeds(struct __sk_buff *skb, __u32 mtu, const struct transport *t)
{
	__u8 data_offset;

	if (!skb->gso_size)
		return 1; // the caller has compared the length
	if (t->proto != IPPROTO_TCP)
		return t->offset + 8 - ETH_HLEN + skb->gso_size > mtu;
	if (bpf_skb_load_bytes(skb, t->offset + 12, &data_offset, 1))
		return 1;
	return t->offset + (data_offset >> 4) * 4 - ETH_HLEN + skb->gso_size > mtu;
}

// hides says whether the frame may hold what its sender left to hardware in a place that the agent cannot know. A TCP
// checksum is in its place. Behind UDP there may be a tunnel of the workload's own, on any port, with the unfinished
// checksum inside; so behind any protocol that is none of these.
static __always_inline int hides(const struct transport *t)
{
	return t->frag == WHOLE && t->proto != IPPROTO_TCP && t->proto != IPPROTO_ICMP && t->proto != PROTO_ICMP6;
}

#define ENTERED -2 // no program returns it: forward has unpacked the frame, which goes on as one that came in at a port

// inside reads what is behind the UDP header at `at` of a packet for a VTEP, and returns the number of the VNI's port; 0
// if the agent has to look at it: it is not VXLAN as the kernel can unpack it here, or no network's.
static __noinline __u32 inside(struct __sk_buff *skb, __be32 vtep, __u32 at, struct inner *inner)
{
	struct vtep_key key = {.ip = vtep};
	__u32 *number;
	__u8 next = 0;

	if (bpf_skb_load_bytes(skb, at, inner, INNER_BYTES) || inner->vxlan.flags != bpf_htonl(VXLAN_HAS_KEY) ||
	    inner->vxlan.vni & bpf_htonl(0xff))
		return 0;
	if (skb->gso_size) { // the kernel would cut any other than TCP in the wrong places: see may_strip
		at += INNER_BYTES;
		if (inner->proto == bpf_htons(ETH_P_IP))
			at += __builtin_offsetof(struct iphdr, protocol);
		else if (inner->proto == bpf_htons(ETH_P_IPV6))
			at += __builtin_offsetof(struct ipv6hdr, nexthdr);
		else
			return 0;
		if (bpf_skb_load_bytes(skb, at, &next, 1) || next != IPPROTO_TCP)
			return 0;
	}
	key.vni = inner->vxlan.vni;
	number = bpf_map_lookup_elem(&vteps, &key);
	return number ? *number : 0;
}

// has_checked reports whether the kernel or the hardware has checked an outer UDP checksum. One that is not finished yet
// must not be taken off with the header that it is in.
static __always_inline int has_checked(struct __sk_buff *skb)
{
	return bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0 || bpf_csum_update(skb, 0) >= 0;
}

// enter takes the outer headers off a packet for a VTEP, and returns the number of the port at which the inner frame goes
// on; 0 if the agent has to look at it, else the frame must be dropped: -1.
static __noinline __s64 enter(struct __sk_buff *skb, __u32 udp)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	struct udphdr header;
	struct inner inner;
	__be16 proto;
	__be32 vtep;
	__u32 number;

	if (udp != ETH_HLEN + sizeof(struct iphdr) || bpf_skb_load_bytes(skb, udp, &header, sizeof(header)) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, daddr), &vtep, sizeof(vtep)))
		return 0;
	number = inside(skb, vtep, udp + sizeof(header), &inner);
	if (!number)
		return 0;
	if (!header.check) // what the hardware has checked may be the inner packet
		flags |= ADJ_ROOM_NO_CSUM_RESET;
	else if (!has_checked(skb))
		return 0;
	if (inner.proto == bpf_htons(ETH_P_IPV6))
		flags |= ADJ_ROOM_DECAP_L3_IPV6;
	if (strip(skb, OUTER_BYTES, flags, &proto))
		return -1;
	if (!header.check) // the outer one of 0 counts among the checksums found right
		bpf_csum_level(skb, BPF_CSUM_LEVEL_DEC);
	count(COUNT_VTEP_IN);
	return number;
}

// framed_mtu returns the largest IP packet for a way of `mtu` bytes, 0 for any, when frames leave framed; tagged says that
// the tag of a frame takes room on the way.
static __always_inline __u32 framed_mtu(__u32 mtu, const struct framing *g, __u32 vlan, int tagged)
{
	if (g && g->pops)
		vlan = 0;
	if (g && g->tci)
		vlan = 1;
	if (mtu && vlan && (tagged || (g && g->wraps)))
		mtu -= 4;
	return mtu && g && g->wraps ? mtu - OUTER_BYTES : mtu;
}

// forward sends a frame that came in at a port on by its flow, answers it, or gives it up; or it unpacks it, sets `in` to
// the port of what was inside, and returns ENTERED. An answer leaves with the tag `tci` of the port, 0 for none.
static __always_inline int forward_once(struct __sk_buff *skb, __u32 *at, const __u16 tci)
{
	const __u32 in = *at;
	void *data, *end;
	__u32 len = skb->len, mtu;
	struct transport t = {};
	struct tunnel *tunnel = NULL;
	struct port *port = NULL;
	struct ethhdr *eth;
	struct flow *f = NULL;
	struct flow4 *f4 = NULL;
	struct flow6 *f6 = NULL;
	const struct framing *g = NULL;
	int parsed = HAS_NO_KEY, err;
	__u16 vlan = 0;
	__s64 entered;

	pull_headers(skb);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	eth = data;
	if ((void *)(eth + 1) > end)
		return to_agent(skb, in, MALFORMED, 0);
	if (skb->vlan_present) {
		if (skb->vlan_proto != bpf_htons(ETH_P_8021Q))
			return to_agent(skb, in, NO_KEY, is_large(skb));
		vlan = 0x1000 | (skb->vlan_tci & 0xfff);
	}
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct key4 k = {.port = in, .vlan = vlan};
		__builtin_memcpy(k.dmac, eth, 12);
		parsed = parse4(skb, &k, &t);
		if (parsed == HAS_KEY)
			f4 = bpf_map_lookup_elem(&flows4, &k);
		f = (struct flow *)f4;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct key6 k = {.port = in, .vlan = vlan};
		__builtin_memcpy(k.dmac, eth, 12);
		parsed = parse6(skb, &k, &t);
		if (parsed == HAS_KEY)
			f6 = bpf_map_lookup_elem(&flows6, &k);
		f = (struct flow *)f6;
	}
	if (parsed == IS_MALFORMED)
		return to_agent(skb, in, MALFORMED, 0);
	if (parsed == HAS_NO_KEY) {
		int done = answer(skb, in);
		if (done == NOT_ANSWERED)
			return to_agent(skb, in, NO_KEY, is_large(skb));
		return tag(skb, tci) ? dropped(DROP_KERNEL) : done;
	}
	if (!f)
		return to_agent(skb, in, MISS, is_large(skb) || hides(&t));
	if (!is_current(f))
		return to_agent(skb, in, STALE, is_large(skb) || hides(&t));

	if (f->kind & NOTES_END && begins(f, t.tcp_flags))
		return to_agent(skb, in, STALE, is_large(skb));
	if (f->kind & REWRITES && t.options) /* flows hold for packets with options and without */
		return to_agent(skb, in, HAS_OPTIONS, is_large(skb) || hides(&t));
	if (f->kind & REWRITES && expires(skb, hops_of(f)))
		return to_agent(skb, in, EXPIRED, 0);
	if (f->kind & FRAMED) {
		g = find_framing(f->slots[MAX_TAGS - 2]);
		if (!g)
			return to_agent(skb, in, STALE, is_large(skb) || hides(&t));
	}
	if ((f->kind & OUT_KIND) == OUT_INSIDE) {
		if (!f4 || t.frag != WHOLE || t.options || expires(skb, hops_of(f)))
			return to_agent(skb, in, EXPIRED, 0);
		__sync_fetch_and_add(&f->packets, 1);
		__sync_fetch_and_add(&f->bytes, len);
		f->used = bpf_ktime_get_coarse_ns();
		entered = enter(skb, t.offset);
		if (entered < 0)
			return dropped(DROP_KERNEL);
		if (!entered)
			return to_agent(skb, in, MISS, is_large(skb) || hides(&t));
		*at = entered;
		return ENTERED;
	}
	if ((f->kind & OUT_KIND) == OUT_TUNNEL) {
		tunnel = find_tunnel(f->out);
		if (!tunnel)
			return to_agent(skb, in, STALE, is_large(skb) || hides(&t));
		mtu = framed_mtu(tunnel->mtu, g, vlan, 1);
		if (len - ETH_HLEN > mtu && exceeds(skb, mtu, &t))
			return to_agent(skb, in, TOO_BIG_TUNNEL, 0);
	} else if ((f->kind & OUT_KIND) == OUT_PORT) {
		port = find_port(f->out);
		if (!port)
			return to_agent(skb, in, STALE, is_large(skb) || hides(&t));
		mtu = framed_mtu(port->mtu, g, vlan, 0);
		if (mtu && len - ETH_HLEN > mtu && exceeds(skb, mtu, &t))
			return to_agent(skb, in, TOO_BIG_PORT, 0);
	}
	if (f->kind & COPIED)
		send_copies(skb, f, &t, 0);
	if (f->kind & REWRITES) {
		if (f->kind & LIMITED && !admits_flow(skb, f->epochs[MAX_TAGS - 1]))
			return dropped(DROP_LIMIT);
		err = REFUSED;
		if (f4)
			err = rewrite4(skb, f4, &t);
		else if (f6)
			err = rewrite6(skb, f6, &t);
		if (err == CUT_SHORT)
			return to_agent(skb, in, MALFORMED, 0);
		if (err)
			return dropped(DROP_KERNEL);
		if (f->kind & COPIED)
			send_copies(skb, f, &t, 1);
	}
	__sync_fetch_and_add(&f->packets, 1);
	__sync_fetch_and_add(&f->bytes, len);
	f->used = bpf_ktime_get_coarse_ns();
	if (f->kind & NOTES_END)
		note_end(f, t.tcp_flags);
	if (g && frame(skb, f->slots[MAX_TAGS - 2], f->outer_port))
		return dropped(DROP_KERNEL);
	if (tunnel)
		return to_tunnel(skb, tunnel, vni_of(f), f->outer_port);
	if (port)
		return to_port(skb, port, 1);
	return dropped(DROP_FLOW);
}

// forward is forward_once, for the frame inside a VXLAN packet too: no packet in there is unpacked.
static __always_inline int forward(struct __sk_buff *skb, __u32 in, const __u16 tci)
{
	int done = forward_once(skb, &in, tci);

	if (done != ENTERED)
		return done;
	done = forward_once(skb, &in, 0);
	return done == ENTERED ? dropped(DROP_BAD_TUNNEL) : done;
}

// subport_of returns the number of the port that a frame with a tag from a trunk belongs to, and takes the tag off. It
// returns 0 if the frame must be dropped. The kernel has put the tag beside the frame by now, wherever the workload left
// it.
static __noinline __u32 subport_of(struct __sk_buff *skb)
{
	struct lan_key key = {.ifindex = skb->ifindex, .vlan = skb->vlan_tci & 0xfff};
	__u32 *number = bpf_map_lookup_elem(&subports, &key), in;

	if (!number) {
		count(DROP_UNKNOWN_VLAN);
		return 0;
	}
	in = *number;
	if (bpf_skb_vlan_pop(skb)) {
		count(DROP_KERNEL);
		return 0;
	}
	return in;
}

// is_of_trunk says whether a frame with a tag that came in at a port is of one of its subports. A tag of VLAN 0 says a
// priority alone.
static __always_inline int is_of_trunk(struct __sk_buff *skb, __u32 in)
{
	struct port *p;

	if (skb->vlan_proto != bpf_htons(ETH_P_8021Q) || !(skb->vlan_tci & 0xfff))
		return 0;
	p = find_port(in);
	return p && p->trunk;
}

SEC("tcx/ingress")
int from_workload(struct __sk_buff *skb)
{
	__u32 in = port_of(skb->ifindex);
	__u16 tci = 0;

	if (!in)
		return dropped(DROP_NO_PORT);
	if (skb->vlan_present && is_of_trunk(skb, in)) {
		tci = 0x1000 | (skb->vlan_tci & 0xfff);
		in = subport_of(skb);
		if (!in)
			return TCX_DROP;
	}
	return forward(skb, in, tci);
}

// limit_from_workload marks and limits what the machine of a port sends, ahead of from_workload. Interfaces of ports
// without limits do not have it.
SEC("tcx/ingress")
int limit_from_workload(struct __sk_buff *skb)
{
	struct limited *l = limited_of(skb);

	if (!l)
		return TCX_NEXT;
	if (l->egress && pass_limit(skb, l->egress))
		return dropped(DROP_LIMIT);
	if (l->marks && mark(skb, l->dscp))
		return dropped(DROP_KERNEL);
	return TCX_NEXT;
}

// limit_to_workload limits what the machine of a port receives. A frame that has to wait gets its time of departure, if
// the interface has a queue that waits for it.
SEC("tcx/egress")
int limit_to_workload(struct __sk_buff *skb)
{
	struct limited *l = limited_of(skb);
	__s64 departure = l && l->ingress ? pass_limit(skb, l->ingress) : 0;

	if (departure < 0)
		return dropped(DROP_LIMIT);
	if (departure > 0)
		skb->tstamp = departure;
	return TCX_NEXT;
}

// from_physical takes in what comes by an interface into physical networks: frames to MAC addresses at home here, and
// copies of those to many. All else is the host's own. The kernel has put a tag beside the frame by now, whether or not
// the hardware did.
SEC("tcx/ingress")
int from_physical(struct __sk_buff *skb)
{
	struct lan_key key = {.ifindex = skb->ifindex};
	struct home_key home = {};
	struct lan *lan;

	if (skb->vlan_present) {
		if (skb->vlan_proto != bpf_htons(ETH_P_8021Q))
			return TCX_NEXT;
		key.vlan = skb->vlan_tci & 0xfff; // 0: a priority alone
	}
	lan = bpf_map_lookup_elem(&lans, &key);
	if (!lan || bpf_skb_load_bytes(skb, 0, home.mac, sizeof(home.mac)))
		return TCX_NEXT;
	if (home.mac[0] & 1) {
		copy_to_agent(skb, lan, home.mac);
		return TCX_NEXT;
	}
	home.port = lan->port;
	if (!bpf_map_lookup_elem(&homes, &home))
		return TCX_NEXT;
	count(COUNT_LAN_IN);
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return dropped(DROP_KERNEL);
	return forward(skb, home.port, 0);
}

static __always_inline int is_local(const struct config *c, __be32 address)
{
	return address == c->local[0] || address == c->local[1] || address == c->local[2] || address == c->local[3];
}

static __always_inline int state_message(struct __sk_buff *skb, __be32 from, __u32 at)
{
	struct upcall meta = {.from = from, .reason = STATE};
	int err = to_ring(skb, &meta, at);

	return err ? dropped(err) : TCX_DROP;
}

// may_strip says whether the outer headers of a frame for the port may be taken off here; `at` is where the inner packet
// lies. An offload frame keeps the marks of a tunnel when they are. A TCP socket at the other end of a veth does not mind;
// but the kernel would cut a frame for a tap, needlessly, and any other than TCP in the wrong places. Those go through the
// kernel's vxlan device, which clears the marks.
static __always_inline int may_strip(struct __sk_buff *skb, const struct port *p, __be16 proto, __u32 at)
{
	__u8 next = 0;

	if (!skb->gso_size)
		return 1;
	if (p->kind == PORT_PLAIN)
		return 0;
	if (proto == bpf_htons(ETH_P_IP))
		at += __builtin_offsetof(struct iphdr, protocol);
	else if (proto == bpf_htons(ETH_P_IPV6))
		at += __builtin_offsetof(struct ipv6hdr, nexthdr);
	else
		return 0;
	return bpf_skb_load_bytes(skb, at, &next, 1) == 0 && next == IPPROTO_TCP;
}

// follow sends a frame that came for a port on to the host to which the port has moved.
static __noinline int follow(struct __sk_buff *skb, __u32 number, __u32 key, __u32 outer_port)
{
	struct tunnel *t = find_tunnel(number);

	return t ? to_tunnel(skb, t, bpf_htonl(key << 8), outer_port) : dropped(DROP_NO_TUNNEL);
}

// The outer headers behind the Ethernet header.
struct outer3 {
	struct iphdr ip;
	struct udphdr udp;
	struct vxlan vxlan;
} __attribute__((packed));

// from_tunnel takes in a tunnelled frame that came by a device whose link-layer headers are `l2` bytes long, in a way that
// the peer must be allowed.
static __always_inline int from_tunnel(struct __sk_buff *skb, const __u32 l2, const __u32 way)
{
	const __u32 vxlan_at = l2 + __builtin_offsetof(struct outer3, vxlan), inner_at = l2 + sizeof(struct outer3);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 zero = 0, key, *number;
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	struct config *c;
	struct outer3 *o = data + l2;
	struct inner inner;
	struct peer *peer = NULL;
	struct port *p;
	__be16 proto, outer_port;
	__be32 from;

	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return TCX_NEXT;
	if ((void *)&o->vxlan > end) {
		if (skb->len < vxlan_at)
			return TCX_NEXT;
		bpf_skb_pull_data(skb, vxlan_at);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		o = data + l2;
		if ((void *)&o->vxlan > end)
			return TCX_NEXT;
	}
	c = bpf_map_lookup_elem(&config, &zero);
	if (!c || o->ip.protocol != IPPROTO_UDP || o->udp.dest != c->tunnel_port || o->ip.ihl != 5 || o->ip.version != 4 ||
	    o->ip.frag_off & bpf_htons(0x3fff) || !is_local(c, o->ip.daddr))
		return TCX_NEXT;
	from = o->ip.saddr;
	outer_port = o->udp.source;
	if (o->udp.check == 0) // what the hardware has checked may be the inner packet
		flags |= ADJ_ROOM_NO_CSUM_RESET;
	if (c->guarded) {
		peer = bpf_map_lookup_elem(&peers, &from);
		if (!peer)
			return dropped(DROP_UNKNOWN_HOST);
		if (!(peer->ways & way))
			return dropped(DROP_UNENCRYPTED);
	}
	if (bpf_skb_load_bytes(skb, vxlan_at, &inner, INNER_BYTES))
		return dropped(DROP_BAD_TUNNEL);
	if (peer && !has_secret(peer, &inner.vxlan))
		return dropped(DROP_WRONG_SECRET);
	if ((inner.vxlan.flags & bpf_htonl(0xff000000)) != bpf_htonl(VXLAN_HAS_KEY))
		return dropped(DROP_BAD_TUNNEL);
	proto = inner.proto;
	key = bpf_ntohl(inner.vxlan.vni) >> 8;
	if (key == 0xffffff)
		return state_message(skb, from, inner_at + ETH_HLEN);
	number = bpf_map_lookup_elem(&deliveries, &key);
	if (!number)
		return dropped(DROP_UNKNOWN_KEY);
	p = find_delivery(*number);
	if (!p)
		return dropped(DROP_NO_PORT);
	if (peer && !may_send(peer, *number))
		return dropped(DROP_FOREIGN_HOST);
	// Without an Ethernet header outside, the packet needs room for one: the kernel counts the inner one as such only then.
	// It makes none for a packet that it has merged from many.
	if (!may_strip(skb, p, proto, inner_at + ETH_HLEN) || (!l2 && bpf_skb_change_head(skb, ETH_HLEN, 0)))
		return to_kernel(skb, &inner.vxlan, vxlan_at);
	if (proto == bpf_htons(ETH_P_IPV6))
		flags |= ADJ_ROOM_DECAP_L3_IPV6;
	if (strip(skb, OUTER_BYTES, flags, &proto))
		return dropped(DROP_KERNEL);
	if (flags & ADJ_ROOM_NO_CSUM_RESET) // the outer one of 0 counts among the checksums found right
		bpf_csum_level(skb, BPF_CSUM_LEVEL_DEC);
	count(COUNT_TUNNEL_IN);
	if (p->kind == PORT_MOVED)
		return follow(skb, p->out, key, outer_port);
	return to_port(skb, p, proto == bpf_htons(ETH_P_IP) || proto == bpf_htons(ETH_P_IPV6));
}

SEC("tcx/ingress")
int from_underlay(struct __sk_buff *skb)
{
	return from_tunnel(skb, ETH_HLEN, WAY_PLAIN);
}

// from_wireguard is from_underlay for what comes decrypted from the WireGuard device.
SEC("tcx/ingress")
int from_wireguard(struct __sk_buff *skb)
{
	return from_tunnel(skb, 0, WAY_ENCRYPTED);
}

// from_vxlan delivers what the kernel's vxlan device has unpacked, if from_underlay has accepted it: the device takes
// in what reaches this host by any interface. Whether the sender may send to the port is asked again: of a packet that the
// kernel has merged, or was given merged, from_underlay has seen the first key alone.
SEC("tcx/ingress")
int from_vxlan(struct __sk_buff *skb)
{
	struct bpf_tunnel_key tunnel = {};
	__u32 zero = 0, key, *number;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	struct peer *peer = NULL;
	struct port *p;
	__be32 from;

	if (c && c->guarded && skb->mark != MARK_ACCEPTED)
		return dropped(DROP_UNCHECKED);
	skb->mark = 0;
	if (bpf_skb_get_tunnel_key(skb, &tunnel, sizeof(tunnel), 0))
		return dropped(DROP_BAD_TUNNEL);
	if (c && c->guarded) {
		from = bpf_htonl(tunnel.remote_ipv4);
		peer = bpf_map_lookup_elem(&peers, &from);
		if (!peer)
			return dropped(DROP_UNKNOWN_HOST);
	}
	key = tunnel.tunnel_id;
	number = bpf_map_lookup_elem(&deliveries, &key);
	if (!number)
		return dropped(DROP_UNKNOWN_KEY);
	p = find_delivery(*number);
	if (!p)
		return dropped(DROP_NO_PORT);
	if (peer && !may_send(peer, *number))
		return dropped(DROP_FOREIGN_HOST);
	count(COUNT_TUNNEL_IN);
	if (p->kind == PORT_MOVED)
		return follow(skb, p->out, key, bpf_htons(FIXED_OUTER_PORT));
	return to_port(skb, p, 1);
}

// to_underlay writes the secret into the frames that the kernel's vxlan device has packed for to_vxlan_device.
SEC("tcx/egress")
int to_underlay(struct __sk_buff *skb)
{
	return skb->mark == MARK_STAMP ? stamp(skb) : TCX_NEXT;
}

// from_agent carries out what the agent wrote to its tap: an instruction in the place of the Ethernet header, then the
// frame. Copies for mirrors come in here too.
SEC("tcx/ingress")
int from_agent(struct __sk_buff *skb)
{
	struct instruction do_this;
	const struct framing *g;
	struct tunnel *t;
	struct port *p;
	__be16 proto;

	if (skb->mark == MARK_COPY)
		return deliver_copy(skb);
	if (bpf_skb_load_bytes(skb, 0, &do_this, sizeof(do_this)) || do_this.magic != TAP_MAGIC)
		return dropped(DROP_BAD_INSTRUCTION);
	if (strip(skb, sizeof(do_this), BPF_F_ADJ_ROOM_FIXED_GSO | ADJ_ROOM_NO_CSUM_RESET, &proto))
		return dropped(DROP_KERNEL);
	if (do_this.framing) {
		g = find_framing(do_this.framing);
		if (!g || frame(skb, do_this.framing, do_this.outer_port))
			return dropped(DROP_KERNEL);
		if (g->wraps)
			proto = do_this.proto;
	}
	if (do_this.kind == OUT_TUNNEL) {
		t = find_tunnel(do_this.out);
		return t ? to_tunnel(skb, t, do_this.vni, do_this.outer_port) : dropped(DROP_NO_TUNNEL);
	}
	p = find_port(do_this.out);
	return p ? to_port(skb, p, proto == do_this.proto) : dropped(DROP_NO_PORT);
}

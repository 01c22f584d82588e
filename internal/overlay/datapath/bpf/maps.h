/* Maps of the overlay's datapath and the layout of what is in them. The Go side has the same structs (generated). It
 * carries over the entries of pinned maps of another version by the names of their members: 0 in a new member means what
 * was meant before, one with another meaning gets another name, enums grow at their end (docs/decisions/0038). */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_TAGS 6
#define MAX_COPIES 4
#define UPCALL_BYTES 2048
#define UPCALL_SMALL 192
#define NEAR_INTERFACES 65536
#define INDEX(number) ((number)&0xffff) /* the rest of a port's or tunnel's number is its generation */

enum frag { WHOLE, FIRST_FRAG, LATER_FRAG };

struct key4 {
	__u32 port;
	__u8 dmac[6], smac[6];
	__be32 saddr, daddr;
	__be16 sport, dport;
	__u16 vlan;
	__u8 proto;
	__u8 frag;
};

struct key6 {
	__u32 port;
	__u8 dmac[6], smac[6];
	__be32 saddr[4], daddr[4];
	__be16 sport, dport;
	__u16 vlan;
	__u8 proto;
	__u8 frag;
};

struct tag {
	__u32 slot, epoch;
};

enum out_kind {
	OUT_DROP,
	OUT_PORT,
	OUT_TUNNEL,
	OUT_INSIDE, /* its frames are VXLAN packets for a VTEP of the virtual network: what is inside goes on by its own flow */
};

/* Beside enum out_kind in the kind of a flow. */
#define OUT_KIND 3
#define REWRITES 4   /* its frames leave with other headers: struct headers4 or headers6 */
#define TRANSLATES 8 /* addresses or ports are among them */
#define COPIED 32    /* copies of its frames go to mirrors: the number of a struct copies is in the last slot, which is no tag's */
#define LIMITED 16   /* one that rewrites has limits: two numbers in the last place for an epoch, which is no tag's */
#define FRAMED 64    /* its frames leave framed: the number of a struct framing is in the last slot but one, which is no tag's */
#define NOTES_END 128 /* a translation lives with the TCP connection of its frames: FIN and RST are noted, as below */

/* In the tag_count of a flow. */
#define TAG_COUNT 7  /* the number of tags */
#define SHARED 8     /* other hosts have the translation too: a SYN goes up */
#define SYN_SEEN 32  /* a frame had SYN; FIN_SEEN is about those since */
#define FIN_SEEN 64  /* a frame had FIN */
#define RST_LAST 128 /* the last frame had RST */

/* Both kinds of flows are as large as the kernel's allocator makes them anyway: a flow4 of 105 bytes would take 256
 * with key and hash node, in place of 192. */
struct flow {
	__u64 packets, bytes;
	__u64 used; /* coarse monotonic clock, ns */
	__u64 cookie;
	__u32 out;	   /* number of a port or tunnel */
	__be32 vni_hops;   /* tunnel key as in the VXLAN header; last byte: by how much the TTL is lowered */
	__be16 outer_port; /* UDP source, differs between flows so that the underlay can spread them */
	__u8 kind;
	__u8 tag_count; /* with SHARED and what follows beside it */
	__u16 slots[MAX_TAGS]; /* the tags */
	__u32 epochs[MAX_TAGS];
};

/* Headers with which frames leave; those that do not change have the values of the key. Of an echo sport is the id. */
struct headers4 {
	__u8 dmac[6], smac[6];
	__be32 saddr, daddr;
	__be16 sport, dport;
};

struct headers6 {
	__u8 dmac[6], smac[6];
	__be32 saddr[4], daddr[4];
	__be16 sport, dport;
};

struct flow4 {
	struct flow common;
	struct headers4 to;
};

struct flow6 {
	struct flow common;
	struct headers6 to;
};

struct port {
	__u32 number; /* of the owner, also the last one when out is 0 */
	__u32 out; /* ifindex; of a port that has moved the number of the tunnel to its host */
	__u32 mtu; /* 0: any */
	__u8 kind; /* of enum port_kind */
	__u8 trunk; /* 1: frames with a tag that come in by the interface are those of subports */
	__u16 vlan; /* of a localnet port or subport: 0x1000 | id of the tag that frames leave with; 0: none */
};

/* Where a copy of a flow's frames goes: to a port or into a tunnel, as the flow's own fields say for the frames. */
struct copy {
	__u32 out;
	__be32 vni;
	__u8 kind;	/* of enum out_kind; OUT_DROP: it is none */
	__u8 rewritten; /* 1: it has the headers of the flow, else those that frames come with */
	__u16 framing;	/* number of a struct framing; 0: none */
};

struct copies {
	struct copy all[MAX_COPIES]; /* those that are none come last */
};

/* What frames get around them when they leave, in this order: their tag goes, another comes, and outer headers of a VTEP
 * of the virtual network, which is no host's. */
struct framing {
	__u16 tci; /* of the tag that comes: 0x1000 | VLAN id; 0: none */
	__u8 pops;
	__u8 wraps;
	__u32 ip_sum;	/* one's complement sum of the IP header below, its length taken as 0 */
	__u8 outer[52]; /* 50 used: outer headers with VNI, lengths, IP checksum and UDP source left 0 */
};

/* A VTEP of the virtual network and one of its VNIs. */
struct vtep_key {
	__be32 ip;
	__be32 vni; /* as in the VXLAN header */
};

enum port_kind {
	PORT_PLAIN,
	PORT_VETH, /* a veth whose other end is in another namespace */
	PORT_MOVED, /* to another host, and tunnelled frames for it go on to there */
	PORT_VTEP,  /* of a VNI of a VTEP, where frames only come in */
};

/* A VLAN by the interface: of a physical network into it, 0 there being frames without a tag, or of a trunk. */
struct lan_key {
	__u32 ifindex;
	__u32 vlan;
};

enum many { DISCOVERY, OTHER_MANY, MANY_KINDS };

/* The localnet port of a VLAN, and by kind of frames to many when the next one is due: see admit. */
struct lan {
	__u32 port;
	__u32 pad;
	__u64 next[MANY_KINDS]; /* coarse monotonic clock, ns */
};

/* A MAC address that this host stands for on the LAN of a localnet port (docs/decisions/0016). */
struct home_key {
	__u32 port;
	__u8 mac[6];
	__u16 pad;
};

#define OUTER_BYTES 50 /* Ethernet, IPv4, UDP, VXLAN */

struct tunnel {
	__u32 number;
	__u32 ifindex;
	__u32 mtu; /* of inner IP packets */
	__u32 ip_sum; /* one's complement sum of the IP header below, its length taken as 0 */
	__u8 outer[52]; /* 50 used: outer headers with lengths, IP checksum, UDP source, VNI and secret left 0 */
	__u32 secret; /* for the host at the other end; see struct peer */
};

struct config {
	__be32 local[4]; /* tunnel addresses of this host; 0: none */
	__u32 tap, vxlan; /* ifindex */
	__u32 port_credits, total_credits;
	__be16 tunnel_port;
	__u16 guarded; /* 1: frames of tunnels are accepted from peers alone; 0 until an agent that knows them has said so */
};

#define MAX_PEERS 4096
#define MAX_SECRETS 4

/* Another host, by the outer source of its tunnelled frames. A secret is the 32 reserved bits of a VXLAN header: the
 * upper 24 those behind the flags, the lower 8 those behind the VNI. Entries of accept that are not needed repeat
 * another one. */
struct peer {
	__u32 index; /* its bit in struct senders */
	__u32 secret; /* in frames to it */
	__u32 accept[MAX_SECRETS]; /* in frames from it */
	__u32 ways; /* of enum way: how frames from it may come */
	__u32 wireguard; /* ifindex of the device by which frames to it leave; 0: in the clear */
};

enum way {
	WAY_PLAIN = 1,	   /* in the clear, by the underlay's interfaces */
	WAY_ENCRYPTED = 2, /* by the WireGuard device */
};

/* The peers that may send to a port: hosts that have a port in its network. */
struct senders {
	__u32 peers[MAX_PEERS / 32];
};

/* Upcalls under way from one port: taken here, given back by the agent. Index 0 counts those of all ports. */
struct credit {
	__u32 taken, given;
};

/* A token is what passes in a nanosecond at the rate. */
struct bucket {
	__u64 rate;  /* bits or packets a second; 0: any */
	__s64 depth; /* ns: the burst, by the rate */
	__s64 due;   /* monotonic clock, ns: since when there are tokens, or when there will be */
};

struct limit {
	struct bucket bits, packets;
	__u64 max_wait; /* ns: how long a frame may wait for its departure in the device's queue; 0: none waits */
	__u64 dropped, delayed; /* packets */
};

/* The port at an interface, or in a VLAN there, that has limits or a mark. */
struct limited {
	__u16 egress, ingress; /* numbers of limits: of what the machine sends, and receives; 0: none */
	__u8 marks; /* 1: what it sends gets this mark */
	__u8 dscp;
	__u8 trunk; /* 1: frames with a tag at the interface are those of subports */
	__u8 pad;
};

enum reason { MISS = 1, STALE, NO_KEY, MALFORMED, TOO_BIG_TUNNEL, TOO_BIG_PORT, STATE, EXPIRED, HAS_OPTIONS };

struct upcall {
	__u32 port;
	__be32 from;
	__u32 length;
	__u16 captured;
	__be16 vlan_proto; /* of a tag beside the frame; 0: none */
	__u16 vlan_tci;
	__u8 reason;
	__u8 pad[5];
};

/* What stands in front of a frame that goes up through the tap, in the place of an Ethernet header. */
struct tap_upcall {
	__u32 port;
	__be16 vlan_proto;
	__u16 vlan_tci;
	__u8 reason;
	__u8 magic;
	__u16 magic_tail;
	__be16 proto;
} __attribute__((packed));

/* What stands in front of a frame that the agent writes to the tap. proto must be IPv4 or IPv6: the kernel moves the
 * head of no other packet. */
struct instruction {
	__u32 out;
	__be32 vni;
	__be16 outer_port;
	__u8 kind;
	__u8 magic;
	__be16 proto;
	__u16 framing; /* number of a struct framing; 0: none */
} __attribute__((packed));

#define TAP_MAGIC 0x48
#define TAP_MAGIC_TAIL 0x4844

enum counter {
	COUNT_TUNNEL_IN,
	COUNT_UPCALL,
	DROP_FLOW,	     /* the flow says so */
	DROP_NO_PORT,	     /* came in on an interface without a number, or goes to one that has gone */
	DROP_NO_TUNNEL,
	DROP_UNKNOWN_KEY,    /* from the underlay, nobody's tunnel key */
	DROP_BAD_TUNNEL,     /* from the underlay to our port, but not VXLAN or cut short */
	DROP_PORT_CREDITS,   /* its port has too many upcalls waiting */
	DROP_TOTAL_CREDITS,
	DROP_RING_FULL,
	DROP_KERNEL,	     /* the kernel refused to change the packet */
	DROP_BAD_INSTRUCTION,
	DROP_UNKNOWN_HOST,   /* tunnelled, its outer source is no host's */
	DROP_WRONG_SECRET,   /* tunnelled, without the secret of its outer source: forged */
	DROP_FOREIGN_HOST,   /* tunnelled, its host has no port in the network of the key */
	DROP_UNCHECKED,	     /* tunnelled, and not by way of the underlay's interfaces */
	DROP_UNENCRYPTED,    /* tunnelled, in the clear from a host that encrypts or the other way round */
	DROP_MANY_RATE,	     /* the agent's copy: a LAN sends more frames to many than it may */
	DROP_MANY_LARGE,     /* the agent's copy of a frame to many: longer than a record of the ring holds */
	DROP_UNKNOWN_VLAN,   /* from a trunk, with the tag of no subport */
	DROP_LIMIT,	     /* over a limit of its port, floating IP or gateway */
	DROP_COPY,	     /* a copy for a mirror: its port or tunnel is gone, or does not take a frame so long */
	COUNT_COPY,	     /* copies for mirrors that were sent */
	COUNT_ANSWERED,	     /* questions about neighbours, answered by the programs */
	COUNT_LAN_IN,	     /* from physical networks: to a home here, or to many */
	COUNT_VTEP_IN,	     /* VXLAN packets for VTEPs of the virtual network, unpacked */
	COUNT_VTEP_OUT,	     /* frames packed by them */
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct key4);
	__type(value, struct flow4);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct key6);
	__type(value, struct flow6);
} flows6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} epochs SEC(".maps");

/* Number of the port at an interface: by index in an array, which costs a hit next to nothing, or for the rare index
 * beyond it in a hash. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NEAR_INTERFACES);
	__type(key, __u32);
	__type(value, __u32);
} near_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} far_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct lan_key);
	__type(value, struct lan);
} lans SEC(".maps");

/* Number of the subport of a trunk. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct lan_key);
	__type(value, __u32);
} subports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct home_key);
	__type(value, __u8);
} homes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct tunnel);
} tunnels SEC(".maps");

/* By the number that flows have; 0 is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct framing);
} framings SEC(".maps");

/* Number of the port of a VTEP's VNI. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct vtep_key);
	__type(value, __u32);
} vteps SEC(".maps");

/* Number of the port that a tunnel key names. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} deliveries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PEERS);
	__type(key, __be32);
	__type(value, struct peer);
} peers SEC(".maps");

/* By the index of a port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct senders);
} senders SEC(".maps");

/* By number; 0 is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct lan_key);
	__type(value, struct limited);
} limited SEC(".maps");

/* By the number that flows have. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct copies);
} copies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct credit);
} credits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} upcalls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &which);
	if (n)
		(*n)++;
}

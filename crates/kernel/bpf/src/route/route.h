/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs of a router's ports, those that watch the kernel's tables, and user space share. */
#pragma once

#include "lib/common.h"

/* Ports that frames are forwarded between. */
#define ROUTE_PORTS 64
#define ROUTE_NO_TAG 4096
/* Bits of the table of this machine's own IPv4 addresses. */
#define ROUTE_LOCAL_BITS 4096

enum route_mode {
	/* The kernel forwards. */
	ROUTE_STANDARD,
	/* The program forwards what it can. */
	ROUTE_ROUTED,
	/* The program decides, and the kernel forwards. */
	ROUTE_SHADOW,
	/* A bit beside one of the latter two: of connections that conntrack knows, those that a rule of the operator's marked. */
	ROUTE_STATEFUL = 4,
};

/* What a next hop depends on beside the destination and the way in. */
#define ROUTE_BY_SOURCE 1
#define ROUTE_BY_PORTS 2
#define ROUTE_BY_TOS 4
/* The flow label of IPv6. */
#define ROUTE_BY_LABEL 8

/*
 * What became of a frame, and its counter. All but the first went up to the kernel; those from UNTRACKED to OIF_CHANGED are of mode
 * stateful.
 */
#define ROUTE_EACH_VERDICT(X) \
	X(FORWARDED, forwarded) \
	X(OTHER_MAC, other_mac) \
	X(NOT_IP, not_ip) \
	X(UNKNOWN_VLAN, unknown_vlan) \
	X(BAD_HEADER, bad_header) \
	X(BAD_CHECKSUM, bad_checksum) \
	X(OPTIONS, options) \
	X(HOP_LIMIT, hop_limit) \
	X(FRAGMENT, fragment) \
	X(ICMP_ERROR, icmp_error) \
	X(MARTIAN, martian) \
	X(REVERSE_PATH, reverse_path) \
	X(LOCAL, local) \
	X(REFUSED, refused) \
	X(NO_FORWARDING, no_forwarding) \
	X(ENCAPSULATED, encapsulated) \
	X(NO_NEIGHBOUR, no_neighbour) \
	X(TOO_BIG, too_big) \
	X(NOT_A_PORT, not_a_port) \
	X(HAIRPIN, hairpin) \
	X(UNTRACKED, untracked) \
	X(HANDSHAKE, handshake) \
	X(NO_CONNECTION, no_connection) \
	X(UNMARKED, unmarked) \
	X(NOT_ESTABLISHED, not_established) \
	X(CT_EXTENSION, ct_extension) \
	X(WINDOW, window) \
	X(OIF_CHANGED, oif_changed) \
	X(PARTIAL_CHECKSUM, partial_checksum)

enum route_verdict {
#define X(NAME, name) ROUTE_##NAME,
	ROUTE_EACH_VERDICT(X)
#undef X
	ROUTE_VERDICTS,
};

/* One port and CPU. */
struct route_count {
	/* In the order of route_verdict, by which the programs index them. */
#define X(NAME, name) __u64 name;
	ROUTE_EACH_VERDICT(X)
#undef X
	__u64 forwarded_bytes;
	/* Forwarded ones whose next hop was not remembered. */
	__u64 fib_lookups;
	/* Decisions of the shadow that were written down. */
	__u64 sampled;
	/* Frames that the shadow would have forwarded. */
	__u64 shadowed;
	__u64 translated;
	/* Put into the queue of one of the CPUs that forward. */
	__u64 enqueued;
	/* Taken out of it by this CPU. */
	__u64 dequeued;
	/* Grows with frames whose next hop was not remembered, shrinks with those whose was; not a counter. */
	__u64 misses;
};
_Static_assert(__builtin_offsetof(struct route_count, forwarded_bytes) == ROUTE_VERDICTS * sizeof(__u64), "a counter for each verdict");

/* A port's interface, and its address on the link. */
struct route_port {
	__u32 ifindex;
	__u8 mac[6];
	/* ROUTE_WAY_* of what comes in by it without a tag. */
	__u16 flags;
};

/* A time of conntrack's, as it is set and as it is read. */
struct route_time {
	__u32 ms;
	__u32 ticks;
};

/* Which connections are forwarded, and how long they live when nothing comes. */
struct route_track {
	__u32 mark;
	__u32 mask;
	/* TCP too: conntrack does not hold it against what it last saw itself. */
	__u32 tcp;
	/* Ticks in which a time that was just set may be found. */
	__u32 slack;
	/* Translated ones too: bit 0 of IPv4, bit 1 of IPv6. */
	__u32 nat;
	struct route_time established;
	struct route_time unanswered;
	struct route_time stream;
};

/* Buckets of the indirection table that assigns flows to CPUs, as in RSS (ethtool -x). */
#define ROUTE_BUCKETS 256

/* The indirection table, and the secret seed of its hash. */
struct route_reta {
	__u64 seed;
	__u16 cpu[ROUTE_BUCKETS];
};

/* Written by user space but for the generation, which those that watch the kernel's tables count up too. */
struct route_config {
	__u32 mode;
	/* ROUTE_BY_* */
	__u32 key;
	/* What was remembered under another one is not used. */
	__u64 generation;
	struct route_track track;
	/* Counted up each second: next hops that are used are told of once in each. */
	__u32 second;
	struct route_port ports[ROUTE_PORTS];
	/* A bit per hash of an address of this machine: from there nothing may come. */
	__u64 local[ROUTE_LOCAL_BITS / 64];
	struct route_reta reta;
};

/* Frames of a port that were lost on their way between CPUs. */
struct route_loss {
	/* The queue was full. */
	__u64 queue_full;
	/* No memory for a socket buffer. */
	__u64 no_memory;
	/* The program of the other CPU could not send it on. */
	__u64 not_sent;
};

/* A way in or out: a port, or a VLAN device on it. */
struct route_interface {
	/* The port's number. */
	__u32 port;
	/* VLAN id, or ROUTE_NO_TAG. */
	__u16 tag;
	/* ROUTE_WAY_*. */
	__u16 flags;
};

/* Frames can be sent out by it. */
#define ROUTE_IF_OUT 1
/* What goes back by the way that it came is answered by a redirect. */
#define ROUTE_IF_REDIRECTS 2
/* net.ipv4.conf.*.rp_filter: 1 and 2. */
#define ROUTE_IF_STRICT 4
#define ROUTE_IF_LOOSE 8
/* There is such a way. */
#define ROUTE_IF_IN 16
/* net.ipv6.conf.*.disable_ipv6 */
#define ROUTE_IF_NO_V6 32

/* A neighbour that frames were sent to. */
struct route_neigh {
	__u32 ifindex;
	__u32 family;
	__u32 address[4];
};

/* How a frame leaves. */
struct route_egress {
	/* The port's interface, and the tag on the link. */
	__u32 ifindex;
	__u16 tag;
	__u8 hop_limit;
	__u8 pad;
	__u8 macs[12];
	__u32 pad2;
};

#define ROUTE_HEAD 96

/* A frame of the shadow: how it would have left, and how the kernel sent it. */
struct route_sample {
	struct route_egress own;
	struct route_egress kernel;
	__u64 ingress_ns;
	/* Times that the kernel has sent it. */
	__u32 sent;
	/* Of the frame, and of its bytes here. */
	__u32 len;
	__u32 kept;
	__u32 in_ifindex;
	__u8 head[ROUTE_HEAD];
};

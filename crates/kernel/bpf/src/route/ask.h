/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Asks the kernel where a frame goes. */
#pragma once

#include <stdbool.h>

#include "lib/common.h"
#include "route/address.h"

#define ROUTE_AF_INET 2
#define ROUTE_AF_INET6 10
/* BPF_FIB_LOOKUP_SKIP_NEIGH (6.3). */
#define ROUTE_SKIP_NEIGH 4

/* Where frames leave, by the port's number. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, ROUTE_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} route_ports SEC(".maps");

/* By the interface's number, VLAN devices included. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct route_way);
} route_ways SEC(".maps");

/* The interface's number of a VLAN device, by port << 12 | id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} route_tags SEC(".maps");

/* Neighbours that frames were sent to, with the time of the last answer of the kernel's that named them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct route_hop);
	__type(value, __u64);
} route_hops SEC(".maps");

/* All that a next hop may depend on. */
struct route_key {
	__u32 to[4];
	__u32 from[4];
	__be32 ports;
	__be32 label;
	__u32 way;
	__u32 by;
	__u8 protocol;
	__u8 tos;
};

/* How frames leave to one neighbour. */
struct route_exit {
	/* When the kernel named it last. */
	__u64 generation;
	/* When user space was told last that it is used. */
	__u32 second;
	__u32 address[4];
	__u32 ifindex;
	__u32 family;
	__u32 macs[3];
	__u16 port;
	__u16 tag;
	__u16 mtu;
	__u16 pad;
};

/* The kernel's answer, by the number of its reason. */
static __always_inline enum route_end route_refusal(long found)
{
	switch (found) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return ROUTE_REFUSED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return ROUTE_NO_FORWARDING;
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return ROUTE_WRAPPED;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return ROUTE_NO_NEIGHBOUR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return ROUTE_TOO_BIG;
	default:
		/* Local, broadcast, no route. */
		return ROUTE_LOCAL;
	}
}

/* Whether frames from there may come this way in. */
static __always_inline bool route_leads_back(struct xdp_md *ctx, const struct route_key *k, bool strict)
{
	struct bpf_fib_lookup fib = {};

	fib.family = ROUTE_AF_INET;
	fib.tos = k->tos;
	fib.ifindex = k->way;
	fib.ipv4_src = k->to[0];
	fib.ipv4_dst = k->from[0];
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), ROUTE_SKIP_NEIGH) != BPF_FIB_LKUP_RET_SUCCESS)
		return false;
	return !strict || fib.ifindex == k->way;
}

/* Tells user space that frames go there. */
static __noinline int route_used(const struct route_exit *exit)
{
	__u64 now = bpf_ktime_get_coarse_ns(), *before;
	struct route_hop hop = {};

	if (!exit)
		return 0;
	hop.ifindex = exit->ifindex;
	hop.family = exit->family;
	__builtin_memcpy(hop.address, exit->address, sizeof(hop.address));
	/* A look costs less than an update. */
	before = bpf_map_lookup_elem(&route_hops, &hop);
	if (!before)
		bpf_map_update_elem(&route_hops, &hop, &now, BPF_ANY);
	else if (*before != now)
		*before = now;
	return 0;
}

/* Asks the kernel. A function of its own: it is rarely called, and has a stack of its own. */
static __noinline int route_ask(struct xdp_md *ctx, struct route_key *k, struct route_exit *exit, __u32 len, __u32 version)
{
	struct bpf_fib_lookup fib = {};
	struct route_way *in, *out;
	__u32 index;
	long found;

	if (!k || !exit)
		return ROUTE_LOCAL;
	fib.family = version == 4 ? ROUTE_AF_INET : ROUTE_AF_INET6;
	fib.l4_protocol = k->protocol;
	/* Frames are held against the limit one by one: this one has only to be let through. */
	fib.tot_len = len;
	fib.ifindex = k->way;
	fib.sport = k->ports;
	fib.dport = k->ports >> 16;
	if (version == 4) {
		fib.tos = k->tos;
		fib.ipv4_src = k->from[0];
		fib.ipv4_dst = k->to[0];
	} else {
		fib.flowinfo = k->label;
		__builtin_memcpy(fib.ipv6_src, k->from, sizeof(k->from));
		__builtin_memcpy(fib.ipv6_dst, k->to, sizeof(k->to));
	}
	found = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
		return route_refusal(found);
	index = fib.ifindex;
	out = bpf_map_lookup_elem(&route_ways, &index);
	if (!out || !(out->flags & ROUTE_WAY_OUT))
		return ROUTE_NOT_A_PORT;
	index = k->way;
	in = bpf_map_lookup_elem(&route_ways, &index);
	if (!in)
		return ROUTE_NOT_A_PORT;
	if (fib.ifindex == k->way && (version == 6 || in->flags & ROUTE_WAY_REDIRECTS))
		return ROUTE_SAME_WAY;
	if (version == 4 && in->flags & (ROUTE_WAY_STRICT | ROUTE_WAY_LOOSE) && !route_leads_back(ctx, k, in->flags & ROUTE_WAY_STRICT))
		return ROUTE_REVERSE_PATH;
	exit->ifindex = fib.ifindex;
	exit->family = fib.family;
	/* The kernel has put the neighbour's address in the destination's place. */
	__builtin_memcpy(exit->address, fib.ipv6_dst, sizeof(exit->address));
	if (version == 4)
		exit->address[1] = exit->address[2] = exit->address[3] = 0;
	exit->port = out->port;
	exit->tag = out->tag;
	/* The limit of the way, which shares its place with the length that was asked about. */
	exit->mtu = fib.mtu_result;
	__builtin_memcpy(exit->macs, fib.dmac, 6);
	__builtin_memcpy((void *)exit->macs + 6, fib.smac, 6);
	return ROUTE_FORWARDED;
}

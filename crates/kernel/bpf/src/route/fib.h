/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Asks the kernel where a frame goes. */
#pragma once

#include <stdbool.h>

#include "lib/common.h"
#include "route/nexthop.h"

#define ROUTE_AF_INET 2
#define ROUTE_AF_INET6 10

/* The interface's number of a VLAN device, by port << 12 | id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} route_tags SEC(".maps");

/* Prefixes of both versions: no packet to an address in it is longer than this on its route, where the route says so (`mtu` of `ip route`). The kernel's answer
 * has that limit only where the route locks it; ip_forward() always goes by it. */
struct route_prefix {
	__u32 len;
	/* 4 or 6, on the wire: before the address, so that the versions share no prefix. */
	__be32 version;
	__u32 to[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct route_prefix);
	__type(value, __u32);
} route_mtus SEC(".maps");

/* All that a next hop may depend on. */
struct route_key {
	__u32 to[4];
	__u32 from[4];
	__be32 ports;
	__be32 label;
	__u32 iif;
	__u32 by;
	__u8 protocol;
	__u8 tos;
	bool tagged;
	/* All of it is written where it is made: a global function takes no other. */
	__u8 pad;
};

/* The kernel's answer, by the number of its reason. */
static __always_inline enum route_verdict route_fib_verdict(long found)
{
	switch (found) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return ROUTE_REFUSED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return ROUTE_NO_FORWARDING;
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return ROUTE_ENCAPSULATED;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return ROUTE_NO_NEIGHBOUR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return ROUTE_TOO_BIG;
	default:
		/* Local, broadcast, no route. */
		return ROUTE_LOCAL;
	}
}

/* Whether frames from there may come this way in. `fib` is what was asked before: the stack has no room for two. */
static __always_inline bool route_reverse_path_ok(struct xdp_md *ctx, const struct route_key *k, struct bpf_fib_lookup *fib, bool strict)
{
	long found;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->family = ROUTE_AF_INET;
	fib->tos = k->tos;
	fib->ifindex = k->iif;
	fib->ipv4_src = k->to[0];
	fib->ipv4_dst = k->from[0];
	found = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	/* The way is named without a neighbour too. BPF_FIB_LOOKUP_SKIP_NEIGH would ask for none, but is of Linux 6.3. */
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH)
		return false;
	return !strict || fib->ifindex == k->iif;
}

static __always_inline __u32 route_if_flags(__u32 ifindex)
{
	struct route_interface *interface = bpf_map_lookup_elem(&route_ifs, &ifindex);

	return interface ? interface->flags : 0;
}

/* The longest packet to that destination, where it is less than `mtu`. */
static __always_inline __u32 route_mtu(const struct route_key *k, __u32 version, __u32 mtu)
{
	struct route_prefix prefix = { .len = 32 + (version == 4 ? 32 : 128), .version = bpf_htonl(version) };
	__u32 *limit;

	__builtin_memcpy(prefix.to, k->to, sizeof(k->to));
	limit = bpf_map_lookup_elem(&route_mtus, &prefix);
	return limit && *limit < mtu ? *limit : mtu;
}

/* Asks the kernel. A function of its own, with a stack of its own, and global: the verifier looks at it once, not for each state in which it is
 * called. */
__noinline int route_fib_lookup(struct xdp_md *ctx, struct route_key *k, struct route_nexthop *nexthop, __u32 len, __u32 version)
{
	struct bpf_fib_lookup fib = {};
	__u32 in;
	long found;

	if (!k || !nexthop)
		return ROUTE_LOCAL;
	fib.family = version == 4 ? ROUTE_AF_INET : ROUTE_AF_INET6;
	fib.l4_protocol = k->protocol;
	/* Frames are held against the limit one by one: this one has only to be let through. */
	fib.tot_len = len;
	fib.ifindex = k->iif;
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
		return route_fib_verdict(found);
	in = k->tagged ? route_if_flags(k->iif) : route_config.ports[route_port & (ROUTE_PORTS - 1)].flags;
	if (!(in & ROUTE_IF_IN))
		return ROUTE_NOT_A_PORT;
	if (version == 6 && in & ROUTE_IF_NO_V6)
		return ROUTE_NO_FORWARDING;
	if (fib.ifindex == k->iif && (version == 6 || in & ROUTE_IF_REDIRECTS))
		return ROUTE_HAIRPIN;
	nexthop->ifindex = fib.ifindex;
	nexthop->family = fib.family;
	/* The kernel has put the neighbour's address in the destination's place. */
	__builtin_memcpy(nexthop->address, fib.ipv6_dst, sizeof(nexthop->address));
	/* A next hop of IPv4 may be a neighbour of IPv6. */
	if (fib.family == ROUTE_AF_INET)
		nexthop->address[1] = nexthop->address[2] = nexthop->address[3] = 0;
	/* The limit of the way, which shares its place with the length that was asked about. */
	nexthop->mtu = route_mtu(k, version, fib.mtu_result);
	if (len > nexthop->mtu)
		return ROUTE_TOO_BIG;
	__builtin_memcpy(nexthop->macs, fib.dmac, 6);
	__builtin_memcpy((void *)nexthop->macs + 6, fib.smac, 6);
	if (version == 4 && in & (ROUTE_IF_STRICT | ROUTE_IF_LOOSE) && !route_reverse_path_ok(ctx, k, &fib, in & ROUTE_IF_STRICT))
		return ROUTE_REVERSE_PATH;
	return route_nexthop_insert(nexthop) ? ROUTE_FORWARDED : ROUTE_NOT_A_PORT;
}

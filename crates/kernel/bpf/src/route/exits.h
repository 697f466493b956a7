/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The neighbours that frames leave to: each CPU knows those of this generation by number. */
#pragma once

#include <stdbool.h>

#include "lib/common.h"
#include "route/address.h"

/* Exits of each CPU, a power of two. */
#define ROUTE_EXITS 4096
#define ROUTE_EXIT_BITS 12
/* Seconds that an answer is remembered at the most, a power of two; whatever names an exit has used it since. */
#define ROUTE_SECONDS 16
/* Exits that one may be noted in. */
#define ROUTE_EXIT_WAYS 4
#define ROUTE_UNKNOWN ROUTE_EXITS

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

/* Neighbours that frames were sent to, with the time of the last answer of the kernel's that named them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct route_hop);
	__type(value, __u64);
} route_hops SEC(".maps");

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
	/* Of an answer: the exit that it names, ROUTE_UNKNOWN if none. */
	__u16 number;
	/* Each has a cache line of its own. */
	__u64 pad;
};

/* Groups of all CPUs, set at load time. The kernel has what can be mapped begin with a page, and so each group with a cache line. */
#define ROUTE_TABLE(value_type, name, entries) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, entries); \
		__type(key, __u32); \
		__type(value, value_type); \
	} name SEC(".maps")

ROUTE_TABLE(struct route_exit, route_exits, ROUTE_EXITS);

static __always_inline __u64 route_whole_hash(__u64 a, __u64 b)
{
	__u64 hash = (a ^ (a >> 29)) * 0x9e3779b97f4a7c15ULL;

	hash ^= b * 0xc2b2ae3d27d4eb4fULL;
	hash ^= hash >> 32;
	return hash * 0x165667b19e3779f9ULL;
}

static __always_inline __u64 route_hash(__u64 a, __u64 b)
{
	return route_whole_hash(a, b) >> 33;
}

/* Of this CPU's part of a table. */
static __always_inline __u32 route_own(__u64 at, __u32 mask)
{
	return bpf_get_smp_processor_id() * (mask + 1) + ((__u32)at & mask);
}

/* When what the group `at` holds was asked: each second a sixteenth of the groups forgets, so that never all has to be asked again at once. */
static __always_inline __u64 route_turn(__u64 generation, __u32 at)
{
	__u32 second = *(volatile __u32 *)&route_config.second;

	return generation + ((__u64)((second + at % ROUTE_SECONDS) / ROUTE_SECONDS) << 40);
}

static __always_inline bool route_is_same(const struct route_exit *a, const struct route_exit *b)
{
	return a->ifindex == b->ifindex && a->macs[0] == b->macs[0] && a->macs[1] == b->macs[1] && a->macs[2] == b->macs[2] &&
	       a->mtu == b->mtu && a->family == b->family && a->address[0] == b->address[0] &&
	       a->address[1] == b->address[1] && a->address[2] == b->address[2] && a->address[3] == b->address[3];
}

static __always_inline struct route_exit *route_exit_of(__u32 exit)
{
	__u32 at = route_own(exit, ROUTE_EXITS - 1);

	return bpf_map_lookup_elem(&route_exits, &at);
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

/* A frame leaves by it. */
static __always_inline void route_use(struct route_exit *exit)
{
	__u32 second = *(volatile __u32 *)&route_config.second;

	if (exit->second != second) {
		exit->second = second;
		route_used(exit);
	}
}

/* Names the exit of an answer, of this generation, and fills in its port and tag. One that a slot may name is left as it is: none is named if all of
 * its places are in use by others. False: it leaves by no port. */
static __always_inline bool route_note(struct route_exit *asked)
{
	__u32 first, i, free = ROUTE_UNKNOWN, index = asked->ifindex, second = *(volatile __u32 *)&route_config.second;
	struct route_exit *exit;
	struct route_way *way;

	first = route_hash(asked->macs[0] | (__u64)asked->macs[1] << 32, asked->ifindex ^ (__u64)asked->address[0] << 32 ^ asked->address[3]);
	first &= ROUTE_EXITS - ROUTE_EXIT_WAYS;
	for (i = 0; i < ROUTE_EXIT_WAYS; i++) {
		exit = route_exit_of(first + i);
		if (!exit)
			break;
		if (exit->generation != asked->generation || second - exit->second > 2 * ROUTE_SECONDS) {
			free = first + i;
		} else if (route_is_same(exit, asked)) {
			route_use(exit);
			asked->port = exit->port;
			asked->tag = exit->tag;
			asked->number = first + i;
			return true;
		}
	}
	way = bpf_map_lookup_elem(&route_ways, &index);
	if (!way || !(way->flags & ROUTE_WAY_OUT))
		return false;
	asked->port = way->port;
	asked->tag = way->tag;
	asked->number = free;
	asked->second = second;
	route_used(asked);
	exit = free < ROUTE_EXITS ? route_exit_of(free) : 0;
	if (exit)
		*exit = *asked;
	return true;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The neighbours that frames leave to: each CPU knows those of this generation by number. */
#pragma once

#include <stdbool.h>

#include "lib/common.h"
#include "route/address.h"

/* Next hops of each CPU, a power of two. */
#define ROUTE_NEXTHOPS 4096
#define ROUTE_NEXTHOP_BITS 12
/* Seconds that an answer is remembered at the most, a power of two; whatever names a next hop has used it since. */
#define ROUTE_CACHE_SECONDS_MAX 16
/* Next hops that one may be noted in. */
#define ROUTE_NEXTHOP_WAYS 4
#define ROUTE_UNKNOWN ROUTE_NEXTHOPS

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
	__type(value, struct route_interface);
} route_ifs SEC(".maps");

/* Neighbours that frames were sent to, with the time of the last answer of the kernel's that named them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct route_neigh);
	__type(value, __u64);
} route_neighs SEC(".maps");

/* How frames leave to one neighbour. */
struct route_nexthop {
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
	/* Of an answer: the next hop that it names, ROUTE_UNKNOWN if none. */
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

ROUTE_TABLE(struct route_nexthop, route_nexthops, ROUTE_NEXTHOPS);

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
static __always_inline __u32 route_cpu_index(__u64 at, __u32 mask)
{
	return bpf_get_smp_processor_id() * (mask + 1) + ((__u32)at & mask);
}

/* When what the group `at` holds was asked: each second a sixteenth of the groups forgets, so that never all has to be asked again at once. */
static __always_inline __u64 route_group_generation(__u64 generation, __u32 at)
{
	__u32 second = *(volatile __u32 *)&route_config.second;

	return generation + ((__u64)((second + at % ROUTE_CACHE_SECONDS_MAX) / ROUTE_CACHE_SECONDS_MAX) << 40);
}

static __always_inline bool route_is_same(const struct route_nexthop *a, const struct route_nexthop *b)
{
	return a->ifindex == b->ifindex && a->macs[0] == b->macs[0] && a->macs[1] == b->macs[1] && a->macs[2] == b->macs[2] &&
	       a->mtu == b->mtu && a->family == b->family && a->address[0] == b->address[0] &&
	       a->address[1] == b->address[1] && a->address[2] == b->address[2] && a->address[3] == b->address[3];
}

static __always_inline struct route_nexthop *route_nexthop_at(__u32 nexthop)
{
	__u32 at = route_cpu_index(nexthop, ROUTE_NEXTHOPS - 1);

	return bpf_map_lookup_elem(&route_nexthops, &at);
}

/* Tells user space that frames go there. */
static __noinline int route_neigh_used(const struct route_nexthop *nexthop)
{
	__u64 now = bpf_ktime_get_coarse_ns(), *before;
	struct route_neigh neigh = {};

	if (!nexthop)
		return 0;
	neigh.ifindex = nexthop->ifindex;
	neigh.family = nexthop->family;
	__builtin_memcpy(neigh.address, nexthop->address, sizeof(neigh.address));
	/* A look costs less than an update. */
	before = bpf_map_lookup_elem(&route_neighs, &neigh);
	if (!before)
		bpf_map_update_elem(&route_neighs, &neigh, &now, BPF_ANY);
	else if (*before != now)
		*before = now;
	return 0;
}

/* A frame leaves by it. */
static __always_inline void route_nexthop_use(struct route_nexthop *nexthop)
{
	__u32 second = *(volatile __u32 *)&route_config.second;

	if (nexthop->second != second) {
		nexthop->second = second;
		route_neigh_used(nexthop);
	}
}

/* Names the next hop of an answer, of this generation, and fills in its port and tag. One that a slot may name is left as it is: none is named if all of
 * its places are in use by others. False: it leaves by no port. */
static __always_inline bool route_nexthop_insert(struct route_nexthop *entry)
{
	__u32 first, i, free = ROUTE_UNKNOWN, index = entry->ifindex, second = *(volatile __u32 *)&route_config.second;
	struct route_nexthop *nexthop;
	struct route_interface *interface;

	first = route_hash(entry->macs[0] | (__u64)entry->macs[1] << 32, entry->ifindex ^ (__u64)entry->address[0] << 32 ^ entry->address[3]);
	first &= ROUTE_NEXTHOPS - ROUTE_NEXTHOP_WAYS;
	for (i = 0; i < ROUTE_NEXTHOP_WAYS; i++) {
		nexthop = route_nexthop_at(first + i);
		if (!nexthop)
			break;
		if (nexthop->generation != entry->generation || second - nexthop->second > 2 * ROUTE_CACHE_SECONDS_MAX) {
			free = first + i;
		} else if (route_is_same(nexthop, entry)) {
			route_nexthop_use(nexthop);
			entry->port = nexthop->port;
			entry->tag = nexthop->tag;
			entry->number = first + i;
			return true;
		}
	}
	interface = bpf_map_lookup_elem(&route_ifs, &index);
	if (!interface || !(interface->flags & ROUTE_IF_OUT))
		return false;
	entry->port = interface->port;
	entry->tag = interface->tag;
	entry->number = free;
	entry->second = second;
	route_neigh_used(entry);
	nexthop = free < ROUTE_NEXTHOPS ? route_nexthop_at(free) : 0;
	if (nexthop)
		*nexthop = *entry;
	return true;
}

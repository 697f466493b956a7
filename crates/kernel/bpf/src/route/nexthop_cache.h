/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where frames go: asked of the kernel once, then remembered by each CPU, in groups of slots that share a cache line. A slot holds what the
 * answer depends on and the number of a next hop, which many slots share: so as many destinations as possible fit into the CPU's caches.
 */
#pragma once

#include "lib/verifier.h"
#include "route/fib.h"

#define ROUTE_SLOTS_V4 4
#define ROUTE_SLOTS_V6 2
#define ROUTE_SLOTS_FLOW 2

/* Groups of slots of each CPU, powers of two, less one. */
const volatile __u32 route_groups_v4_mask = 0;
const volatile __u32 route_groups_v6_mask = 0;
const volatile __u32 route_groups_flow_mask = 0;

/* What becomes of a frame, and how it looks when it leaves. */
struct route_decision {
	struct route_count *count;
	__u32 verdict;
	__u32 frame_len;
	__u32 ip_at;
	__u32 ip_len;
	__u32 port;
	__u32 ifindex;
	__u16 in_tag;
	__u16 out_tag;
	__u16 family;
	__u8 hop_limit;
	/* Its checksum may have been left to a device. */
	bool may_be_partial_csum;
	__u32 macs[3];
};

/* By the destination and the way in. */
struct route_slot_v4 {
	__u32 to;
	/* The way in << ROUTE_NEXTHOP_BITS | the next hop. */
	__u32 path;
	__u64 generation;
};

struct route_group_v4 {
	struct route_slot_v4 slot[ROUTE_SLOTS_V4];
};

struct route_slot_v6 {
	__u64 to[2];
	__u64 generation;
	__u32 path;
	__u32 pad;
};

struct route_group_v6 {
	struct route_slot_v6 slot[ROUTE_SLOTS_V6];
};

/* By all that ROUTE_BY_* names, of either version. */
struct route_slot_flow {
	__u64 to[2];
	__u64 from[2];
	/* The version, the way in, and the ports. */
	__u64 rest;
	/* The flow label, TOS and the protocol. */
	__u64 label;
	__u64 generation;
	__u32 nexthop;
	__u32 pad;
};

struct route_group_flow {
	struct route_slot_flow slot[ROUTE_SLOTS_FLOW];
};

ROUTE_TABLE(struct route_group_v4, route_slots_v4, 1);
ROUTE_TABLE(struct route_group_v6, route_slots_v6, 1);
ROUTE_TABLE(struct route_group_flow, route_slots_flow, 1);
/* What is asked of the kernel: too large for the stack. */
PER_CPU(struct route_nexthop, route_fib_entry);
PER_CPU(struct route_slot_flow, route_flow);

static __always_inline void route_set_nexthop(struct route_decision *d, const struct route_nexthop *nexthop)
{
	d->port = nexthop->port;
	d->ifindex = nexthop->ifindex;
	d->out_tag = nexthop->tag;
	__builtin_memcpy(d->macs, nexthop->macs, sizeof(d->macs));
}

/* The way in, as slots know it. */
static __always_inline __u32 route_ingress(const struct route_decision *d)
{
	return route_port << 13 | d->in_tag;
}

/* Where an answer is kept: in a slot of another generation, else in any. */
#define route_victim(group, slots, now) \
	({ \
		__u32 room = bpf_get_prandom_u32() & (slots - 1), i; \
		_Pragma("unroll") for (i = 0; i < slots; i++) \
			if ((group)->slot[i].generation != (now)) \
				room = i; \
		&(group)->slot[room & (slots - 1)]; \
	})

static __always_inline __u32 route_lookup_v4(__u32 at, __u32 to, __u32 ingress, __u64 now)
{
	struct route_group_v4 *group = bpf_map_lookup_elem(&route_slots_v4, &at);
	__u32 i;

	if (!group)
		return ROUTE_UNKNOWN;
#pragma unroll
	for (i = 0; i < ROUTE_SLOTS_V4; i++) {
		struct route_slot_v4 *slot = &group->slot[i];

		if (slot->to == to && slot->path >> ROUTE_NEXTHOP_BITS == ingress && slot->generation == now)
			return slot->path & (ROUTE_NEXTHOPS - 1);
	}
	return ROUTE_UNKNOWN;
}

static __always_inline void route_insert_v4(__u32 at, __u32 to, __u32 ingress, __u64 now, __u32 nexthop)
{
	struct route_group_v4 *group = bpf_map_lookup_elem(&route_slots_v4, &at);
	struct route_slot_v4 *slot;

	if (!group)
		return;
	slot = route_victim(group, ROUTE_SLOTS_V4, now);
	slot->to = to;
	slot->path = ingress << ROUTE_NEXTHOP_BITS | nexthop;
	slot->generation = now;
}

static __always_inline __u32 route_lookup_v6(__u32 at, const __u64 *to, __u32 ingress, __u64 now)
{
	struct route_group_v6 *group = bpf_map_lookup_elem(&route_slots_v6, &at);
	__u32 i;

	if (!group)
		return ROUTE_UNKNOWN;
#pragma unroll
	for (i = 0; i < ROUTE_SLOTS_V6; i++) {
		struct route_slot_v6 *slot = &group->slot[i];

		if (slot->to[0] == to[0] && slot->to[1] == to[1] && slot->path >> ROUTE_NEXTHOP_BITS == ingress && slot->generation == now)
			return slot->path & (ROUTE_NEXTHOPS - 1);
	}
	return ROUTE_UNKNOWN;
}

static __always_inline void route_insert_v6(__u32 at, const __u64 *to, __u32 ingress, __u64 now, __u32 nexthop)
{
	struct route_group_v6 *group = bpf_map_lookup_elem(&route_slots_v6, &at);
	struct route_slot_v6 *slot;

	if (!group)
		return;
	slot = route_victim(group, ROUTE_SLOTS_V6, now);
	slot->to[0] = to[0];
	slot->to[1] = to[1];
	slot->path = ingress << ROUTE_NEXTHOP_BITS | nexthop;
	slot->generation = now;
}

/* What of a packet its answer depends on. */
static __always_inline void route_flow_of(struct route_slot_flow *flow, const struct route_decision *d, const struct route_key *k, __u32 version)
{
	__u32 by = k->by;

	__builtin_memset(flow, 0, sizeof(*flow));
	flow->rest = (__u64)route_ingress(d) << 32 | (__u64)(version == 6) << 63;
	if (by & ROUTE_BY_PORTS)
		/* Different protocols may use the same ports, and a rule may name one of them. */
		flow->rest |= k->ports, flow->label |= k->protocol;
	if (by & ROUTE_BY_TOS)
		flow->label |= (__u64)k->tos << 8;
	if (version == 6) {
		__builtin_memcpy(flow->to, k->to, sizeof(k->to));
		if (by & ROUTE_BY_SOURCE)
			__builtin_memcpy(flow->from, k->from, sizeof(k->from));
		if (by & ROUTE_BY_LABEL)
			flow->label |= (__u64)k->label << 32;
	} else {
		flow->to[0] = k->to[0];
		if (by & ROUTE_BY_SOURCE)
			flow->from[0] = k->from[0];
	}
}

static __always_inline __u32 route_lookup_flow(__u32 at, const struct route_slot_flow *flow)
{
	struct route_group_flow *group = bpf_map_lookup_elem(&route_slots_flow, &at);
	__u32 i;

	if (!group)
		return ROUTE_UNKNOWN;
#pragma unroll
	for (i = 0; i < ROUTE_SLOTS_FLOW; i++) {
		struct route_slot_flow *slot = &group->slot[i];

		if (slot->to[0] == flow->to[0] && slot->to[1] == flow->to[1] && slot->from[0] == flow->from[0] && slot->from[1] == flow->from[1] &&
		    slot->rest == flow->rest && slot->label == flow->label && slot->generation == flow->generation)
			return slot->nexthop & (ROUTE_NEXTHOPS - 1);
	}
	return ROUTE_UNKNOWN;
}

static __always_inline void route_insert_flow(__u32 at, const struct route_slot_flow *flow)
{
	struct route_group_flow *group = bpf_map_lookup_elem(&route_slots_flow, &at);
	struct route_slot_flow *slot;

	if (!group)
		return;
	slot = route_victim(group, ROUTE_SLOTS_FLOW, flow->generation);
	*slot = *flow;
}

/* Where most destinations come once before all is forgotten, as with a full table whose routes change all the time, to look for what is remembered
 * is in vain. It is done then for a part of them, which shows when it pays again. */
#define ROUTE_MISSES_MAX 4096
#define ROUTE_HIT_CREDIT 16
#define ROUTE_IS_PROBE(hash) (!((hash) >> 26 & 15))

/* Where the frame goes; `number`, unless it is 0, gets the number of the next hop. */
static __always_inline enum route_verdict route_lookup(struct xdp_md *ctx, struct route_decision *d, struct route_key *k, __u32 version, __u32 *number)
{
	__u64 generation = *(volatile __u64 *)&route_config.generation, now, hash;
	__u32 by = k->by, ingress = route_ingress(d), at, found = ROUTE_UNKNOWN, zero = 0;
	struct route_count *count = d->count;
	struct route_slot_flow *flow = 0;
	__u64 *to = (__u64 *)k->to;
	struct route_nexthop *nexthop;
	bool tries_cache;
	int verdict;

	if (by) {
		flow = bpf_map_lookup_elem(&route_flow, &zero);
		if (!flow)
			return ROUTE_LOCAL;
		route_flow_of(flow, d, k, version);
		hash = route_hash(flow->to[0] ^ (flow->to[1] << 7 | flow->to[1] >> 57),
				  flow->rest ^ flow->label << 17 ^ flow->from[0] ^ flow->from[0] << 32 ^ flow->from[1] * 3);
		at = route_cpu_index(hash, route_groups_flow_mask);
	} else if (version == 4) {
		hash = route_hash(k->to[0], ingress);
		at = route_cpu_index(hash, route_groups_v4_mask);
	} else {
		hash = route_hash(to[0] ^ (to[1] << 7 | to[1] >> 57), ingress);
		at = route_cpu_index(hash, route_groups_v6_mask);
	}
	now = route_group_generation(generation, at);
	if (flow)
		flow->generation = now;
	tries_cache = count->misses < ROUTE_MISSES_MAX || ROUTE_IS_PROBE(hash);
	if (tries_cache) {
		if (flow)
			found = route_lookup_flow(at, flow);
		else if (version == 4)
			found = route_lookup_v4(at, k->to[0], ingress, now);
		else
			found = route_lookup_v6(at, to, ingress, now);
	}
	if (found != ROUTE_UNKNOWN) {
		nexthop = route_nexthop_at(found);
		if (!nexthop)
			return ROUTE_LOCAL;
		if (count->misses)
			count->misses = count->misses > ROUTE_HIT_CREDIT ? count->misses - ROUTE_HIT_CREDIT : 0;
		if (d->ip_len > nexthop->mtu)
			return ROUTE_TOO_BIG;
		route_nexthop_use(nexthop);
		route_set_nexthop(d, nexthop);
		if (number)
			*number = found;
		return ROUTE_FORWARDED;
	}
	nexthop = bpf_map_lookup_elem(&route_fib_entry, &zero);
	if (!nexthop)
		return ROUTE_LOCAL;
	nexthop->generation = generation;
	verdict = route_fib_lookup(ctx, k, nexthop, d->ip_len, version);
	if (verdict != ROUTE_FORWARDED)
		return verdict;
	count->fib_lookups++;
	route_set_nexthop(d, nexthop);
	found = nexthop->number;
	if (number)
		*number = found;
	if (!tries_cache || found >= ROUTE_NEXTHOPS)
		return ROUTE_FORWARDED;
	if (count->misses < ROUTE_MISSES_MAX)
		count->misses++;
	if (flow) {
		flow->nexthop = found;
		route_insert_flow(at, flow);
	} else if (version == 4) {
		route_insert_v4(at, k->to[0], ingress, now, found);
	} else {
		route_insert_v6(at, to, ingress, now, found);
	}
	return ROUTE_FORWARDED;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where frames go: asked of the kernel once, then remembered by each CPU, in groups of slots that share a cache line. A slot holds what the
 * answer depends on and the number of an exit, which many slots share: so as many destinations as possible fit into the CPU's caches.
 */
#pragma once

#include "lib/verifier.h"
#include "route/ask.h"

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
	__u32 end;
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
	bool is_suspect;
	__u32 macs[3];
};

/* By the destination and the way in. */
struct route_slot_v4 {
	__u32 to;
	/* The way in << ROUTE_EXIT_BITS | the exit. */
	__u32 way;
	__u64 generation;
};

struct route_group_v4 {
	struct route_slot_v4 slot[ROUTE_SLOTS_V4];
};

struct route_slot_v6 {
	__u64 to[2];
	__u64 generation;
	__u32 way;
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
	__u32 exit;
	__u32 pad;
};

struct route_group_flow {
	struct route_slot_flow slot[ROUTE_SLOTS_FLOW];
};

ROUTE_TABLE(struct route_group_v4, route_slots_v4, 1);
ROUTE_TABLE(struct route_group_v6, route_slots_v6, 1);
ROUTE_TABLE(struct route_group_flow, route_slots_flow, 1);
/* What is asked of the kernel: too large for the stack. */
PER_CPU(struct route_exit, route_asked);
PER_CPU(struct route_slot_flow, route_flow);

static __always_inline void route_take(struct route_decision *d, const struct route_exit *exit)
{
	d->port = exit->port;
	d->ifindex = exit->ifindex;
	d->out_tag = exit->tag;
	__builtin_memcpy(d->macs, exit->macs, sizeof(d->macs));
}

/* The way in, as slots know it. */
static __always_inline __u32 route_way_in(const struct route_decision *d)
{
	return route_port << 13 | d->in_tag;
}

/* Where an answer is kept: in a slot of another generation, else in any. */
#define route_room(group, slots, now) \
	({ \
		__u32 room = bpf_get_prandom_u32() & (slots - 1), i; \
		_Pragma("unroll") for (i = 0; i < slots; i++) \
			if ((group)->slot[i].generation != (now)) \
				room = i; \
		&(group)->slot[room & (slots - 1)]; \
	})

static __always_inline __u32 route_recall_v4(__u32 at, __u32 to, __u32 way, __u64 now)
{
	struct route_group_v4 *group = bpf_map_lookup_elem(&route_slots_v4, &at);
	__u32 i;

	if (!group)
		return ROUTE_UNKNOWN;
#pragma unroll
	for (i = 0; i < ROUTE_SLOTS_V4; i++) {
		struct route_slot_v4 *slot = &group->slot[i];

		if (slot->to == to && slot->way >> ROUTE_EXIT_BITS == way && slot->generation == now)
			return slot->way & (ROUTE_EXITS - 1);
	}
	return ROUTE_UNKNOWN;
}

static __always_inline void route_store_v4(__u32 at, __u32 to, __u32 way, __u64 now, __u32 exit)
{
	struct route_group_v4 *group = bpf_map_lookup_elem(&route_slots_v4, &at);
	struct route_slot_v4 *slot;

	if (!group)
		return;
	slot = route_room(group, ROUTE_SLOTS_V4, now);
	slot->to = to;
	slot->way = way << ROUTE_EXIT_BITS | exit;
	slot->generation = now;
}

static __always_inline __u32 route_recall_v6(__u32 at, const __u64 *to, __u32 way, __u64 now)
{
	struct route_group_v6 *group = bpf_map_lookup_elem(&route_slots_v6, &at);
	__u32 i;

	if (!group)
		return ROUTE_UNKNOWN;
#pragma unroll
	for (i = 0; i < ROUTE_SLOTS_V6; i++) {
		struct route_slot_v6 *slot = &group->slot[i];

		if (slot->to[0] == to[0] && slot->to[1] == to[1] && slot->way >> ROUTE_EXIT_BITS == way && slot->generation == now)
			return slot->way & (ROUTE_EXITS - 1);
	}
	return ROUTE_UNKNOWN;
}

static __always_inline void route_store_v6(__u32 at, const __u64 *to, __u32 way, __u64 now, __u32 exit)
{
	struct route_group_v6 *group = bpf_map_lookup_elem(&route_slots_v6, &at);
	struct route_slot_v6 *slot;

	if (!group)
		return;
	slot = route_room(group, ROUTE_SLOTS_V6, now);
	slot->to[0] = to[0];
	slot->to[1] = to[1];
	slot->way = way << ROUTE_EXIT_BITS | exit;
	slot->generation = now;
}

/* What of a packet its answer depends on. */
static __always_inline void route_flow_of(struct route_slot_flow *flow, const struct route_decision *d, const struct route_key *k, __u32 version)
{
	__u32 by = k->by;

	__builtin_memset(flow, 0, sizeof(*flow));
	flow->rest = (__u64)route_way_in(d) << 32 | (__u64)(version == 6) << 63;
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

static __always_inline __u32 route_recall_flow(__u32 at, const struct route_slot_flow *flow)
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
			return slot->exit & (ROUTE_EXITS - 1);
	}
	return ROUTE_UNKNOWN;
}

static __always_inline void route_store_flow(__u32 at, const struct route_slot_flow *flow)
{
	struct route_group_flow *group = bpf_map_lookup_elem(&route_slots_flow, &at);
	struct route_slot_flow *slot;

	if (!group)
		return;
	slot = route_room(group, ROUTE_SLOTS_FLOW, flow->generation);
	*slot = *flow;
}

/* Where most destinations come once before all is forgotten, as with a full table whose routes change all the time, to look for what is remembered
 * is in vain. It is done then for a part of them, which shows when it pays again. */
#define ROUTE_DOUBT 4096
#define ROUTE_DOUBT_LESS 16
#define ROUTE_IS_PART(hash) (!((hash) >> 26 & 15))

/* Where the frame goes; `number`, unless it is 0, gets the number of the exit. */
static __always_inline enum route_end route_find(struct xdp_md *ctx, struct route_decision *d, struct route_key *k, __u32 version, __u32 *number)
{
	__u64 generation = *(volatile __u64 *)&route_config.generation, now, hash;
	__u32 by = k->by, way = route_way_in(d), at, found = ROUTE_UNKNOWN, zero = 0;
	struct route_count *count = d->count;
	struct route_slot_flow *flow = 0;
	__u64 *to = (__u64 *)k->to;
	struct route_exit *exit;
	bool looks;
	int end;

	if (by) {
		flow = bpf_map_lookup_elem(&route_flow, &zero);
		if (!flow)
			return ROUTE_LOCAL;
		route_flow_of(flow, d, k, version);
		hash = route_hash(flow->to[0] ^ (flow->to[1] << 7 | flow->to[1] >> 57),
				  flow->rest ^ flow->label << 17 ^ flow->from[0] ^ flow->from[0] << 32 ^ flow->from[1] * 3);
		at = route_own(hash, route_groups_flow_mask);
	} else if (version == 4) {
		hash = route_hash(k->to[0], way);
		at = route_own(hash, route_groups_v4_mask);
	} else {
		hash = route_hash(to[0] ^ (to[1] << 7 | to[1] >> 57), way);
		at = route_own(hash, route_groups_v6_mask);
	}
	now = route_turn(generation, at);
	if (flow)
		flow->generation = now;
	looks = count->doubt < ROUTE_DOUBT || ROUTE_IS_PART(hash);
	if (looks) {
		if (flow)
			found = route_recall_flow(at, flow);
		else if (version == 4)
			found = route_recall_v4(at, k->to[0], way, now);
		else
			found = route_recall_v6(at, to, way, now);
	}
	if (found != ROUTE_UNKNOWN) {
		exit = route_exit_of(found);
		if (!exit)
			return ROUTE_LOCAL;
		if (count->doubt)
			count->doubt = count->doubt > ROUTE_DOUBT_LESS ? count->doubt - ROUTE_DOUBT_LESS : 0;
		if (d->ip_len > exit->mtu)
			return ROUTE_TOO_BIG;
		route_use(exit);
		route_take(d, exit);
		if (number)
			*number = found;
		return ROUTE_FORWARDED;
	}
	exit = bpf_map_lookup_elem(&route_asked, &zero);
	if (!exit)
		return ROUTE_LOCAL;
	exit->generation = generation;
	end = route_ask(ctx, k, exit, d->ip_len, version);
	if (end != ROUTE_FORWARDED)
		return end;
	count->fib_lookups++;
	route_take(d, exit);
	found = exit->number;
	if (number)
		*number = found;
	if (!looks || found >= ROUTE_EXITS)
		return ROUTE_FORWARDED;
	if (count->doubt < ROUTE_DOUBT)
		count->doubt++;
	if (flow) {
		flow->exit = found;
		route_store_flow(at, flow);
	} else if (version == 4) {
		route_store_v4(at, k->to[0], way, now, found);
	} else {
		route_store_v6(at, to, way, now, found);
	}
	return ROUTE_FORWARDED;
}

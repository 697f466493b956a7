/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The endpoints of a protocol's program: a ring each, which one process reads and no other sees. */
#pragma once

#include "lib/common.h"

/* Endpoints: a protocol with fewer defines this first. A power of two. */
#ifndef LINK_ENDPOINTS
#define LINK_ENDPOINTS 65536
#endif

/* The longest frame of a protocol, header and payload. */
#define LINK_FRAME_MAX 9032

#define LINK_UNTAGGED 0xffff

/* What stands ahead of a frame in a ring. */
struct link_record {
	__u8 source[6];
	/* The VLAN's number, or LINK_UNTAGGED. */
	__u16 vlan;
	/* Of the frame; what follows it in the record is room. */
	__u32 bytes;
	__u32 pad;
};

/* What the program and the reader of a ring tell each other beside it. A page of the reader's own. */
struct link_ring_state {
	/* Set by the reader who is about to sleep, taken back by the program that wakes him. */
	__u32 asleep;
	/* Set while frames for this ring go to the stack. */
	__u32 closed;
	__u32 pad[14];
	/* Frames for which the ring had no room. */
	__u64 full;
	__u64 more[7];
};

/* What is in no map whose type is told: user space learns the layout by this. */
struct link_layout {
	struct link_record record;
	struct link_ring_state state;
};
const volatile struct link_layout link_layout = {};

struct link_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct link_page {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	/* clang tells of the type of a map within a map only that there is one. */
	__uint(value_size, sizeof(struct link_ring_state));
};

/* The slot of each endpoint in the two maps below; slot 0 is empty. User space writes entries here by stores, thousands at once: an entry of an
 * array of maps would take a grace period of 10 to 50 ms. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LINK_ENDPOINTS);
	__type(key, __u32);
	__type(value, __u64);
} link_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LINK_ENDPOINTS);
	__type(key, __u32);
	__array(values, struct link_ring);
} link_rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LINK_ENDPOINTS);
	__type(key, __u32);
	__array(values, struct link_page);
} link_states SEC(".maps");

/* The ring of an endpoint, and its state; 0 for an endpoint without a ring. */
static __always_inline void *link_ring_at(__u32 endpoint, struct link_ring_state **state)
{
	__u64 *entry = bpf_map_lookup_elem(&link_slots, &endpoint);
	struct link_ring_state *found;
	__u32 slot, zero = 0;
	void *page;

	if (!entry)
		return 0;
	slot = *(volatile __u64 *)entry;
	page = bpf_map_lookup_elem(&link_states, &slot);
	if (!page)
		return 0;
	found = bpf_map_lookup_elem(page, &zero);
	if (!found || found->closed)
		return 0;
	*state = found;
	return bpf_map_lookup_elem(&link_rings, &slot);
}

/* How a record is to be committed. The reader sleeps only if nothing is reserved, after it has set its state; here a record was reserved before
 * the state is looked at. The exchange is a full barrier between the two: so one of both sees the other, and no wake-up is lost. */
static __always_inline __u64 link_wakeup_flag(struct link_ring_state *state)
{
	if (__sync_lock_test_and_set(&state->asleep, 0))
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline void link_count_full(struct link_ring_state *state)
{
	__sync_fetch_and_add(&state->full, 1);
}

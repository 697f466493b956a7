/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* clang: -mcpu=v3 */
/*
 * A barrier, and a sum over a cluster, as a protocol of its own: each node sends (epoch, round, value) to the address of all, and repeats its last
 * two rounds until it has heard all others. Where the last one of a round arrives, the program adds up and tells the endpoint of the group.
 *
 * A node begins a round when it has heard all of the round before: so nobody is more than one round ahead, and two slots are enough. A cell holds
 * round and value in one word, which is changed in one step: no lock, and what comes twice counts once.
 */
#include "lib/common.h"

#include "messages/barrier.h"

#define LINK_ETHERTYPE 0x88B6
#define LINK_HEADER struct barrier_frame
#define LINK_ENDPOINTS BARRIER_GROUPS
#include "messages/hooks.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BARRIER_GROUPS);
	__type(key, __u32);
	__type(value, struct barrier_group);
} barrier_groups SEC(".maps");

/* Why a frame ends here: not of this group, epoch or round; the same again; counted; the last one of its round. */
enum { FOREIGN, AGAIN, COUNTED, COMPLETE };

static __always_inline __u32 link_validate(struct link_frame *f, const struct barrier_frame *h)
{
	f->bytes = sizeof(*h);
	return bpf_ntohs(h->group) < BARRIER_GROUPS && h->node < BARRIER_NODES ? LINK_DELIVER : LINK_DROP(FOREIGN);
}

static __always_inline __u32 link_endpoint(const struct barrier_frame *h)
{
	return bpf_ntohs(h->group);
}

/* Whether all that the group waits for have come to the round; their sum. */
static __always_inline bool add_up(const struct barrier_slot *slot, __u32 nodes, __u32 round, __u64 *sum)
{
	__u32 node;
	__u64 cell;

	for (node = 0; node < BARRIER_NODES; node++) {
		if (!(nodes & 1U << node))
			continue;
		cell = *(volatile __u64 *)&slot->cells[node];
		if (cell >> 32 != round)
			return false;
		*sum += (__u32)cell;
	}
	return true;
}

static __always_inline __u32 link_handle(struct xdp_md *ctx, struct link_frame *f, struct barrier_frame *h)
{
	struct barrier_done done = { .epoch = bpf_ntohl(h->epoch), .round = bpf_ntohl(h->round) };
	__u64 now = (__u64)done.round << 32 | bpf_ntohl(h->value), before, *cell;
	__u32 number = link_endpoint(h), node = h->node & (BARRIER_NODES - 1), nodes;
	struct barrier_group *group = bpf_map_lookup_elem(&barrier_groups, &number);
	struct barrier_slot *slot;

	if (!group)
		return LINK_DROP(FOREIGN);
	nodes = *(volatile __u32 *)&group->nodes;
	if (*(volatile __u32 *)&group->epoch != done.epoch || !(nodes & 1U << node))
		return LINK_DROP(FOREIGN);
	slot = &group->slots[done.round & 1];
	cell = &slot->cells[node];
	before = *(volatile __u64 *)cell;
	if ((__s32)(done.round - (__u32)(before >> 32)) <= 0 || __sync_val_compare_and_swap(cell, before, now) != before)
		return LINK_DROP(AGAIN);
	/* Whoever comes last sees all others: their cells were changed before, and its own change is a full barrier. Two that come at the
	 * same moment both find the round complete, with the same sum; the first one tells. */
	if (!add_up(slot, nodes, done.round, &done.sum))
		return LINK_DROP(COUNTED);
	before = *(volatile __u64 *)&slot->completed;
	*(volatile __u64 *)&slot->sum = done.sum;
	if (before == now >> 32 || __sync_val_compare_and_swap(&slot->completed, before, now >> 32) != before)
		return LINK_DROP(COUNTED);
	link_notify(f, number, done);
	return LINK_DROP(COMPLETE);
}

LINK_PROGRAM(ek_barrier)

char _license[] SEC("license") = "Dual BSD/GPL";

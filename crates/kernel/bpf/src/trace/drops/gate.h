/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Decides which events are looked at, so that looking costs no more of a CPU than its budget.
 *
 * Every kind of event (drop reason) has a slot on every CPU: how many there were, and how many to let pass until the next
 * look. Passing costs two additions in memory of this CPU. A look stands for all events of its slot since the last one, so
 * that what is attributed adds up to what happened. A CPU earns looking time at the rate of its budget and spends what a
 * look took, by the clock; a CPU in debt doubles the distance between the looks of the kinds that come too fast. A rare
 * kind is thus looked at each time while a flood of another kind is sampled.
 *
 * The distance is drawn from 1 to twice its mean, so that drops that come in a regular pattern are not always missed.
 */
#pragma once

#include "lib/common.h"

/* The kernel's own drop reasons each have a slot; those of subsystems (from 65536 on) share one. */
#define SLOT_OTHER 256
#define SLOT_XDP_EXCEPTION 257
#define SLOT_XDP_REDIRECT_ERR 258
/* For measuring what passing costs. */
#define SLOT_CALIBRATION 259
#define SLOTS 260

/* At most one event in so many is looked at. */
#define MAX_EVERY 4096

struct drop_slot {
	__u64 events;
	/* Of them: attributed by looks. */
	__u64 attributed;
	/* Of them: given up, because they were too old when the next look came. */
	__u64 abandoned;
	__u64 last_look_ns;
	__s32 countdown;
	/* The mean distance of looks; 0 and 1: every event. */
	__u32 every;
};

struct drop_cpu {
	struct drop_slot slots[SLOTS];
	__u64 looks;
	__u64 look_ns;
	/* What a look takes, on average. */
	__u64 mean_ns;
	/* Looking time that was earned and not spent; negative: a debt. */
	__s64 credit_ns;
	__u64 credited_at_ns;
	/* When a distance was raised above one for the first and for the last time. */
	__u64 first_backoff_ns;
	__u64 last_backoff_ns;
	/* Events that were not asked for (see wanted), those whose socket found no room in the map, and of those the ones that
	 * found none without it either. */
	__u64 filtered;
	__u64 without_socket;
	__u64 untracked;
	/* What a look takes beyond what it sees of itself by the clock: measured at the start. */
	__u64 overhead_ns;
};

/* Looking may take so many 2^-20ths of a CPU; and the other way round: a look may come each time that it takes, times this. */
const volatile __u32 drop_budget = 5243;
const volatile __u32 drop_budget_inverse = 200;
/* So much looking time can be saved up, and is there at the start. */
const volatile __u64 drop_credit_max_ns = 2000000;
/* Other than 0: looks at one in so many always, whatever it costs. */
const volatile __u32 drop_fixed_every = 0;

/* One element per CPU; readable and writable from user space while the programs run. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drop_cpu);
} drop_cpus SEC(".maps");

static __always_inline struct drop_cpu *drop_this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&drop_cpus, &cpu);
}

/* Counts an event; other than 0: look at it. */
static __always_inline int drop_gate(struct drop_slot *slot)
{
	slot->events++;
	return --slot->countdown <= 0;
}

/* A pause this long ends a flood: the next event no longer stands for those before. */
#define STALE_NS 100000000ULL

/* For how many events this look stands. */
static __always_inline __u64 drop_weight(struct drop_slot *slot, __u64 now)
{
	__u64 weight = slot->events - slot->attributed - slot->abandoned;

	if (weight > 1 && !drop_fixed_every && now - slot->last_look_ns > STALE_NS) {
		slot->abandoned += weight - 1;
		weight = 1;
	}
	slot->attributed += weight;
	return weight;
}

/* Books the look that began at `begin` and ends now, and says when the next is due. */
static __always_inline void drop_settle(struct drop_cpu *cpu, struct drop_slot *slot, __u64 begin)
{
	__u64 spent = bpf_ktime_get_ns() - begin + cpu->overhead_ns, gap = begin - slot->last_look_ns, elapsed, wanted;
	__s64 limit = drop_credit_max_ns;
	__u32 every = slot->every ? slot->every : 1;

	cpu->looks++;
	cpu->look_ns += spent;
	slot->last_look_ns = begin;
	if (drop_fixed_every) {
		every = drop_fixed_every;
		goto next;
	}
	/* An interrupt in between is not what a look costs. */
	if (spent > 20000)
		spent = 20000;
	if (!cpu->mean_ns) {
		cpu->mean_ns = spent;
		cpu->credit_ns = limit;
		cpu->credited_at_ns = begin;
	}
	cpu->mean_ns = (cpu->mean_ns * 15 + spent) >> 4;
	elapsed = begin - cpu->credited_at_ns;
	if (elapsed > 1000000000ULL)
		elapsed = 1000000000ULL;
	/* Spans that would earn less than a nanosecond add up. */
	if (elapsed * drop_budget >= 1 << 20) {
		cpu->credited_at_ns = begin;
		cpu->credit_ns += elapsed * drop_budget >> 20;
	}
	cpu->credit_ns -= spent;
	if (cpu->credit_ns > limit)
		cpu->credit_ns = limit;
	if (cpu->credit_ns < -limit)
		cpu->credit_ns = -limit;
	/* The distance in time at which looks cost the budget. Several kinds in a flood share it: the debt tells. */
	wanted = cpu->mean_ns * drop_budget_inverse;
	if (cpu->credit_ns < 0) {
		if (cpu->credit_ns < -(limit >> 1))
			wanted *= 8;
		else if (cpu->credit_ns < -(limit >> 3))
			wanted *= 2;
		if (gap < wanted && every < MAX_EVERY) {
			every *= 2;
			if (!cpu->first_backoff_ns)
				cpu->first_backoff_ns = begin;
			cpu->last_backoff_ns = begin;
		}
	} else if (gap > STALE_NS) {
		every = 1;
	} else if (every > 1 && gap > 2 * wanted) {
		every /= 2;
	}
next:
	slot->every = every;
	slot->countdown = every > 1 ? 1 + bpf_get_prandom_u32() % (2 * every - 1) : 1;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Limits: packets per second, of a rule or of each source prefix.
 *
 * A bucket is one number: when it will be full again, in units of SHIELD_TICKS per nanosecond (the generic cell rate algorithm, ITU-T
 * I.371). A packet comes within the limit if that is no further away than a burst takes to refill, and moves it on by one packet.
 * All CPUs share the buckets, which only packets within the limit write to: what a flood exceeds is decided by reading. */
#pragma once

#include "filter/rules.h"

/* The difference of two times is right up to four years of idleness. */
#define SHIELD_TICKS_SHIFT 6
#define SHIELD_LIMIT_TRIES 4
#define SHIELD_WAYS 4

/* One rule's bucket, under its counter's number, on a line of its own. */
struct shield_bucket {
	__u64 full_at;
	__u64 pad[7];
};

/* Sources of all rules: the hash says in which set of four one may be, and it stays there until a newer one takes its place. One
 * cache line for each look-up. */
struct shield_sources {
	struct {
		/* Hash of the rule and the prefix; 0 is empty. */
		__u64 key;
		__u64 full_at;
	} way[SHIELD_WAYS];
};

/* Shared by all programs that follow each other, resized by user space. */
struct shield_bucket shield_buckets[1] SEC(".data.sh_bucket") = {};
struct shield_sources shield_sources[1] SEC(".data.sh_sources") = {};

/* Sets of sources less one; a power of two less one. */
const volatile __u64 shield_sources_mask = 0;
/* Odd, random: nobody outside can choose sources that share a set. */
const volatile __u64 shield_seed = 0x9e3779b97f4a7c15ULL;

/* Takes one packet out of a bucket. False: it exceeds the limit. */
static __always_inline bool shield_take(__u64 *full_at, const struct shield_rule *rule, __u64 now)
{
	__u64 was, next;
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < SHIELD_LIMIT_TRIES; i++) {
		was = *(volatile __u64 *)full_at;
		next = (__s64)(was - now) > 0 ? was : now;
		if (next - now > rule->tolerance) {
			/* Further away than this rule can bring it: left by a slower one, and no reason to wait for longer than an
			 * emptied bucket takes. */
			if (next - now - rule->tolerance > rule->interval)
				__sync_val_compare_and_swap(full_at, was, now + rule->tolerance + rule->interval);
			return false;
		}
		if (__sync_val_compare_and_swap(full_at, was, next + rule->interval) == was)
			return true;
	}
	/* Other CPUs came first each time, and took what there was. */
	return false;
}

static __always_inline __u64 shield_mix(__u64 value)
{
	value *= shield_seed;
	return value ^ (value >> 29);
}

static __always_inline __u64 shield_mask64(__u64 word, __u32 bits)
{
	if (!bits)
		return 0;
	return bits >= 64 ? word : bpf_cpu_to_be64(bpf_be64_to_cpu(word) & ~0ULL << ((64 - bits) & 63));
}

/* Whether the packet is within the rule's limit. */
static __always_inline bool shield_within(const struct shield_rule *rule, const struct shield_packet *p,
					  struct shield_total *total)
{
	__u64 now = bpf_ktime_get_ns() << SHIELD_TICKS_SHIFT;
	__u64 high, low, key, age, oldest_age = 0;
	struct shield_sources *set;
	__u32 bits, i, oldest = 0;

	if (!(rule->flags & SHIELD_PER_SOURCE))
		return shield_take(&shield_table(shield_buckets)[rule->counter & (SHIELD_COUNTERS - 1)].full_at, rule, now);

	high = p->source[0] | (__u64)p->source[1] << 32;
	low = p->source[2] | (__u64)p->source[3] << 32;
	bits = p->family == 4 ? rule->v4_len : rule->v6_len;
	key = shield_mix(shield_mask64(high, bits) ^ ((__u64)p->family << 56));
	key = shield_mix(key ^ (bits > 64 ? shield_mask64(low, bits - 64) : 0));
	key = shield_mix(key + rule->counter) | 1;
	set = &shield_table(shield_sources)[(key >> 32) & shield_sources_mask];
	for (i = 0; i < SHIELD_WAYS; i++) {
		if (set->way[i].key == key)
			return shield_take(&set->way[i].full_at, rule, now);
		/* 0 for a bucket that is not full yet, the more the longer it has been. */
		age = set->way[i].key ? now - set->way[i].full_at : ~0ULL >> 1;
		if ((__s64)age > (__s64)oldest_age) {
			oldest_age = age;
			oldest = i;
		}
	}
	if (!oldest_age) {
		/* All four are limited at this moment: one of them is forgotten, and begins anew when it comes again. */
		oldest = (now >> (SHIELD_TICKS_SHIFT + 4)) & (SHIELD_WAYS - 1);
		total->crowded++;
	}
	set->way[oldest & (SHIELD_WAYS - 1)].key = key;
	set->way[oldest & (SHIELD_WAYS - 1)].full_at = now + rule->interval;
	return true;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Limits: packets per second, one for all or one for each source prefix.
 *
 * A bucket is one number: when it will be full again, in units of LIMIT_TICKS per nanosecond (the generic cell rate algorithm, ITU-T
 * I.371). A packet comes within the limit if that is no further away than a burst takes to refill, and moves it on by one packet.
 * All CPUs share the buckets, which only packets within the limit write to: what a flood exceeds is decided by reading. */
#pragma once

#include <stdbool.h>

#include "lib/common.h"

/* The difference of two times is right up to four years of idleness. */
#define LIMIT_TICKS_SHIFT 6
#define LIMIT_TRIES 4
#define LIMIT_WAYS 4

/* A bucket on a line of its own. */
struct limit_bucket {
	__u64 full_at;
	__u64 pad[7];
};

/* Sources: the hash says in which set of four one may be, and it stays there until a newer one takes its place. One cache line for each
 * look-up. */
struct limit_sources {
	struct {
		/* limit_key(); 0 is empty. */
		__u64 key;
		__u64 full_at;
	} way[LIMIT_WAYS];
};

static __always_inline __u64 limit_now(void)
{
	return bpf_ktime_get_ns() << LIMIT_TICKS_SHIFT;
}

/* Takes one packet out of a bucket. `interval` is between two packets, `tolerance` of the burst less one packet. False: it exceeds the limit. */
static __always_inline bool limit_take(__u64 *full_at, __u64 interval, __u64 tolerance, __u64 now)
{
	__u64 was, next;
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < LIMIT_TRIES; i++) {
		was = *(volatile __u64 *)full_at;
		next = (__s64)(was - now) > 0 ? was : now;
		if (next - now > tolerance) {
			/* Further away than this limit can bring it: left by a slower one, and no reason to wait for longer than an
			 * emptied bucket takes. */
			if (next - now - tolerance > interval)
				__sync_val_compare_and_swap(full_at, was, now + tolerance + interval);
			return false;
		}
		if (__sync_val_compare_and_swap(full_at, was, next + interval) == was)
			return true;
	}
	/* Other CPUs came first each time, and took what there was. */
	return false;
}

static __always_inline __u64 limit_mix(__u64 value, __u64 seed)
{
	value *= seed;
	return value ^ (value >> 29);
}

static __always_inline __u64 limit_mask64(__u64 word, __u32 bits)
{
	if (!bits)
		return 0;
	return bits >= 64 ? word : bpf_cpu_to_be64(bpf_be64_to_cpu(word) & ~0ULL << ((64 - bits) & 63));
}

/* The key of a source's prefix of `bits` under the limit of that number, never 0. `seed` is odd and random: nobody outside can choose sources
 * that share a set. */
static __always_inline __u64 limit_key(const __u32 *source, __u8 family, __u32 bits, __u32 number, __u64 seed)
{
	__u64 high = source[0] | (__u64)source[1] << 32, low = source[2] | (__u64)source[3] << 32, key;

	key = limit_mix(limit_mask64(high, bits) ^ ((__u64)family << 56), seed);
	key = limit_mix(key ^ (bits > 64 ? limit_mask64(low, bits - 64) : 0), seed);
	return limit_mix(key + number, seed) | 1;
}

/* limit_take() of the source of that key, whose set this is. `evicted_sources` counts sources evicted while their limit was in use. */
static __always_inline bool limit_take_source(struct limit_sources *set, __u64 key, __u64 interval, __u64 tolerance, __u64 now,
					     __u64 *evicted_sources)
{
	__u64 age, oldest_age = 0;
	__u32 i, oldest = 0;

	for (i = 0; i < LIMIT_WAYS; i++) {
		if (set->way[i].key == key)
			return limit_take(&set->way[i].full_at, interval, tolerance, now);
		/* 0 for a bucket that is not full yet, the more the longer it has been. */
		age = set->way[i].key ? now - set->way[i].full_at : ~0ULL >> 1;
		if ((__s64)age > (__s64)oldest_age) {
			oldest_age = age;
			oldest = i;
		}
	}
	if (!oldest_age) {
		/* All four are limited at this moment: one of them is evicted. */
		oldest = (now >> (LIMIT_TICKS_SHIFT + 4)) & (LIMIT_WAYS - 1);
		(*evicted_sources)++;
	}
	set->way[oldest & (LIMIT_WAYS - 1)].key = key;
	set->way[oldest & (LIMIT_WAYS - 1)].full_at = now + interval;
	return true;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs that send live frames have in common: what is due, and the headers of the next frame. */
#pragma once

#include "lib/common.h"

/* Rates are units per nanosecond, times 2^PACE_RATE_SHIFT. */
#define PACE_RATE_SHIFT 40
/* Beyond this the sums of 64 bits would overflow at the highest rate. */
#define PACE_LAG_MAX_NS ((1 << 27) - 1)
/* The longest headers that can be written. */
#define PACE_HEADER_MAX 120

/* What is due after `passed` nanoseconds, in whole units. `credit` keeps the part of one that is left over; time beyond `lag_max` is given up. */
static __always_inline __u64 pace_due(__u64 passed, __u64 rate, __u64 lag_max, __u64 *credit, __u64 *given_up_ns)
{
	__u64 due;

	if (passed > lag_max) {
		*given_up_ns += passed - lag_max;
		passed = lag_max;
	}
	*credit += passed * rate;
	due = *credit >> PACE_RATE_SHIFT;
	*credit &= (1ULL << PACE_RATE_SHIFT) - 1;
	return due;
}

/* Copies headers of 8 to PACE_HEADER_MAX bytes. Both sides have room, and the verifier knows `len`, so that this is a copy of constant length. */
static __always_inline void pace_write_headers(void *to, const void *from, __u64 len)
{
	__u64 i;

#pragma unroll
	for (i = 0; i < PACE_HEADER_MAX / 8; i++)
		if (len > 8 * i + 8)
			((__u64 *)to)[i] = ((const __u64 *)from)[i];
	/* The last eight bytes, over some of the ones before. */
	*(__u64 *)(to + len - 8) = *(const __u64 *)(from + len - 8);
}

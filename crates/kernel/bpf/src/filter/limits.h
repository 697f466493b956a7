/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Limits of rules: packets per second, of a rule or of each source prefix. */
#pragma once

#include "filter/rules.h"
#include "lib/limit.h"

/* By counter's number, and for the sources of all rules. Shared by all programs that follow each other, resized by user space. */
struct limit_bucket shield_buckets[1] SEC(".data.sh_bucket") = {};
struct limit_sources shield_sources[1] SEC(".data.sh_sources") = {};

/* Sets of sources less one; a power of two less one. */
const volatile __u64 shield_sources_mask = 0;
/* Odd, random: limit_key(). */
const volatile __u64 shield_seed = 0x9e3779b97f4a7c15ULL;

/* Whether the packet is within the rule's limit. */
static __always_inline bool shield_within(const struct shield_rule *rule, const struct packet *p, struct shield_total *total)
{
	__u64 now = limit_now(), key;

	if (!(rule->flags & SHIELD_PER_SOURCE))
		return limit_take(&resized(shield_buckets)[rule->counter & (SHIELD_COUNTERS - 1)].full_at, rule->interval, rule->tolerance,
				  now);
	key = limit_key(p->source, p->family, p->family == 4 ? rule->v4_len : rule->v6_len, rule->counter, shield_seed);
	return limit_take_source(&resized(shield_sources)[(key >> 32) & shield_sources_mask], key, rule->interval, rule->tolerance, now,
				 &total->evicted_sources);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sources that were seen before, while no attack was under way: two bits of one word by a hash of the source (an IPv4 address, the /64 of an IPv6
 * address). User space sets them (bpf::filter::SeenSources), in the younger of two generations; who is in either was seen.
 */
#pragma once

#include "filter/limits.h"

/* Words of a generation, of 64 bits: 1 MB. A power of two. */
#define SEEN_WORDS (1 << 17)

struct shield_seen {
	/* Written by user space for user space: the younger generation, and when it began (seconds of the wall clock). */
	__u64 young;
	__u64 since_s;
	__u64 pad[6];
	__u64 word[2][SEEN_WORDS];
};

/* Resized by user space, shared by all programs that follow each other. */
__u64 shield_seen[1] SEC(".data.sh_seen") = {};
/* Some rule asks for it. */
const volatile bool seen_on = false;

/* Where the words begin, in words. */
#define SEEN_AT 8

static __always_inline bool seen_before(const struct packet *p)
{
	__u64 hash = p->family == 4 ? p->source[0] : p->source[0] | (__u64)p->source[1] << 32, bits, at;

	hash *= shield_seed;
	hash ^= hash >> 32;
	hash *= shield_seed;
	hash ^= hash >> 32;
	bits = 1ULL << (hash & 63) | 1ULL << (hash >> 6 & 63);
	at = SEEN_AT + (hash >> 40 & (SEEN_WORDS - 1));
	return (resized(shield_seen)[at] & bits) == bits || (resized(shield_seen)[at + SEEN_WORDS] & bits) == bits;
}

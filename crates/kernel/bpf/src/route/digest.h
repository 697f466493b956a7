/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Frames that the shadow compares: written down where they come in, found again where they leave. */
#pragma once

#include "lib/common.h"
#include "route/route.h"

/* An IP header without options, and 8 bytes behind it. */
#define ROUTE_DIGEST_V4 28
#define ROUTE_DIGEST_V6 48

/* By digest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct route_sample);
} route_samples SEC(".maps");

static __always_inline __u64 route_mix(__u64 hash, __u32 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/* Of what a router leaves as it is. */
static __always_inline __u64 route_digest_v4(const __u32 *word)
{
	/* Not TOS, which nftables may write, hops and checksum. */
	__u64 hash = route_mix(4, word[0] & bpf_htonl(0xff00ffff));

	hash = route_mix(hash, word[1]);
	hash = route_mix(hash, word[2] & bpf_htonl(0x00ff0000));
	hash = route_mix(hash, word[3]);
	hash = route_mix(hash, word[4]);
	hash = route_mix(hash, word[5]);
	return route_mix(hash, word[6]);
}

static __always_inline __u64 route_digest_v6(const __u32 *word)
{
	__u64 hash = route_mix(6, word[0] & bpf_htonl(0xf00fffff));
	__u32 i;

	hash = route_mix(hash, word[1] & bpf_htonl(0xffffff00));
	for (i = 2; i < ROUTE_DIGEST_V6 / 4; i++)
		hash = route_mix(hash, word[i]);
	return hash;
}

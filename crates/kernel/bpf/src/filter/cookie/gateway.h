/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Gateway and sources mode: verification of sources. The same in Rust for packet rings: crates/run/shield/src/between/ring/proof.rs; a test holds
 * the two together. */
#pragma once

#include "filter/cookie/common.h"
#include "filter/cookie/host.h"

/* Sources that have been verified, with the second (coarse monotonic) of their last SYN. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} known_v4 SEC(".maps");

/* Likewise per /64. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} known_v6 SEC(".maps");

/* A power of two: 512 KB. */
#define COOKIE_STAMPS (1 << 19)

/*
 * Time of the last SYN of a source with that hash, in generations of 2^cookie_generation_shift seconds, counted from 1 to 255 and over again. A flood's
 * sources are not known: this says so at the price of one cache line, where the tables above cost a walk. Who is known has the stamp of
 * this generation or the one before, because a generation is not shorter than cookie_known_s; stamps from days ago, and sources with the same hash,
 * cost a look into the tables and nothing else.
 */
struct cookie_generations {
	__u8 stamp[COOKIE_STAMPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cookie_generations);
} cookie_generations SEC(".maps");

static __always_inline __u32 cookie_now(void)
{
	return bpf_ktime_get_coarse_ns() >> 30;
}

/* Never 0, the stamp of no source. */
static __always_inline __u8 cookie_generation(__u32 now)
{
	return 1 + (now >> cookie_generation_shift) % 255;
}

/* The place of the source's stamp. */
static __always_inline __u8 *cookie_stamp(const struct packet *p)
{
	__u64 hash = connected_mix(p->family == 4 ? p->source[0] : (__u64)p->source[0] << 32 | p->source[1]);
	struct cookie_generations *generations;
	__u32 zero = 0;

	generations = bpf_map_lookup_elem(&cookie_generations, &zero);
	/* Multiplied once more: the low half is as good as the high one then. */
	return generations ? &generations->stamp[connected_mix(hash) >> 45 & (COOKIE_STAMPS - 1)] : NULL;
}

/* True if the source may be known: without the stamp of this generation or the one before it is not. */
static __always_inline bool cookie_may_know(const __u8 *stamp, __u32 now)
{
	__u8 generation = cookie_generation(now);

	return !stamp || *stamp == generation || *stamp == (generation == 1 ? 255 : generation - 1);
}

/* Stamps a source now. Two CPUs that write at once when a generation ends may leave the older one: its source is challenged again early. */
static __always_inline void cookie_mark_source(__u8 *stamp, __u32 now)
{
	if (stamp && *stamp != cookie_generation(now))
		*stamp = cookie_generation(now);
}

static __always_inline __u32 *cookie_known(const struct packet *p, const __u8 *stamp, __u32 now)
{
	if (!cookie_may_know(stamp, now))
		return NULL;
	if (p->family == 4) {
		__u32 key = p->source[0];

		return bpf_map_lookup_elem(&known_v4, &key);
	}
	__u64 key = (__u64)p->source[0] << 32 | p->source[1];

	return bpf_map_lookup_elem(&known_v6, &key);
}

static __always_inline void cookie_insert_source(const struct packet *p, __u32 now)
{
	if (p->family == 4) {
		__u32 key = p->source[0];

		bpf_map_update_elem(&known_v4, &key, &now, BPF_ANY);
	} else {
		__u64 key = (__u64)p->source[0] << 32 | p->source[1];

		bpf_map_update_elem(&known_v6, &key, &now, BPF_ANY);
	}
}

/* A SYN of a challenged source: a cache line. */
struct cookie_pending {
	/* Of addresses and ports; 0: none. */
	__u64 hash;
	/* By cookie_now(). */
	__u32 second;
	__be32 seq;
	__be16 window;
	__u8 flags;
	/* Words of its options. */
	__u8 words;
	__be32 options[SHIELD_OPTION_WORDS];
};

/*
 * The last ones, by that hash. A source that answers rightly need not send its SYN again, which systems other than Linux do after a second or more: its
 * answer becomes that SYN. Under a flood of a million a second a SYN is here for a quarter of a second; a client that is slower tries again by itself, and
 * so does one whose place was taken.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cookie_pending);
} cookie_pending SEC(".maps");

/* Places of that map less one; there is a power of two of them. */
const volatile __u32 cookie_pending_mask = 0;
/* A SYN that is older has been sent again, as far as its client wants it. */
#define COOKIE_PENDING_S 3

static __always_inline struct cookie_pending *cookie_pending_at(__u64 hash)
{
	__u32 place = hash >> 32 & cookie_pending_mask;

	return bpf_map_lookup_elem(&cookie_pending, &place);
}

/* Remembers a SYN. Two CPUs that write to one place at once may leave a mixture: the host refuses what comes of it, and the client tries again. */
static __always_inline void cookie_store_syn(struct xdp_md *ctx, const struct packet *p, const struct tcphdr *tcp, __u32 now)
{
	__u64 hash = connected_hash(p) | 1;
	struct cookie_pending *pending = cookie_pending_at(hash);
	const void *end = (void *)(long)ctx->data_end;
	const __be32 *options = (void *)(tcp + 1);
	__u32 words = tcp->doff - 5, i;

	if (!pending)
		return;
	pending->hash = 0;
	if (words > SHIELD_OPTION_WORDS)
		return;
	for (i = 0; i < SHIELD_OPTION_WORDS && i < words; i++) {
		if ((void *)(options + i + 1) > end)
			return;
		pending->options[i] = options[i];
	}
	pending->second = now;
	pending->seq = tcp->seq;
	pending->window = tcp->window;
	pending->flags = p->flags;
	pending->words = words;
	pending->hash = hash;
}

/* Writes the SYN over the RST that proved its source. False: it is not remembered, or does not fit. */
static __always_inline bool cookie_resume(struct xdp_md *ctx, const struct packet *p, struct shield_reply *reply, __u32 now)
{
	__u64 hash = connected_hash(p) | 1;
	struct cookie_pending *pending = cookie_pending_at(hash);
	__u32 i;

	if (!pending || pending->hash != hash || now - pending->second >= COOKIE_PENDING_S || pending->words > SHIELD_OPTION_WORDS)
		return false;
	pending->hash = 0;
	reply->flags = pending->flags;
	reply->seq = pending->seq;
	reply->ack = 0;
	reply->window = pending->window;
	reply->options = pending->words * 4;
#pragma unroll
	for (i = 0; i < SHIELD_OPTION_WORDS; i++)
		reply->words[i] = pending->options[i];
	return cookie_write(ctx, p, reply, false, SHIELD_OPTION_WORDS);
}

/* Passes, and is a SYN now. */
#define COOKIE_RESUMED -2

/* The number of the challenge is the cookie, or half the numbers away from it. */
static __always_inline bool cookie_differs(__u32 number, __u32 cookie)
{
	return (number - cookie) & 0x7fffffff;
}

static __always_inline int cookie_gateway(struct xdp_md *ctx, struct packet *p, struct shield_cookie_cpu *cpu,
					  struct tcphdr *tcp)
{
	__u8 flags = p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
	__u32 now = cookie_now(), number, *seen;
	struct shield_reply *reply = &cpu->work.reply;
	__be32 seq = tcp->seq, ack = tcp->ack_seq;
	__u8 doff = tcp->doff;
	__u8 *stamp = cookie_stamp(p);
	__u64 period;

	seen = cookie_known(p, stamp, now);
	/* Another CPU may have written a second that began since `now` was read. */
	if (seen && (__s32)(now - *seen) < (__s32)cookie_known_s) {
		if (flags == TCP_SYN) {
			cpu->count.known++;
			cookie_mark_source(stamp, now);
			if ((__s32)(now - *seen) > 0)
				*seen = now;
		}
		return -1;
	}
	if (cookie_no_source(p) || (flags & TCP_SYN && flags & (TCP_RST | TCP_FIN))) {
		cpu->count.odd++;
		return XDP_DROP;
	}
	if (flags != TCP_SYN && flags != TCP_RST) {
		if (cookie_mode == SHIELD_COOKIE_SOURCES)
			return cookie_begun(ctx, p, cpu, seq, ack, doff, flags);
		if (!cookie_strict)
			return -1;
		cpu->count.unknown++;
		return XDP_DROP;
	}
	period = cookie_period();
	number = cookie_hash(p, period);
	if (flags == TCP_RST) {
		if (cookie_differs(bpf_ntohl(seq), number) && cookie_differs(bpf_ntohl(seq), cookie_hash(p, period - 1))) {
			if (!cookie_strict)
				return -1;
			cpu->count.unknown++;
			return XDP_DROP;
		}
		cookie_insert_source(p, now);
		cookie_mark_source(stamp, now);
		cpu->count.proved++;
		if (!cookie_resume(ctx, p, reply, now))
			return XDP_DROP;
		cpu->count.resumed++;
		return COOKIE_RESUMED;
	}
	cookie_store_syn(ctx, p, tcp, now);
	/* One that acknowledges less than the SYN: no client takes it for right, and connection tracking on the way lets it through as a late one. */
	if ((__s32)(number - bpf_ntohl(seq)) > 0)
		number += 0x80000000;
	reply->flags = TCP_SYN | TCP_ACK;
	reply->seq = seq;
	reply->ack = bpf_htonl(number);
	reply->options = 0;
	reply->window = bpf_htons(cookie_window);
	if (!cookie_reply(ctx, p, reply)) {
		cpu->count.failed++;
		return XDP_DROP;
	}
	cpu->count.answered++;
	return cookie_back(ctx);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Gateway mode: sources that show that they exist. The same in Rust for packet rings: crates/shield/src/between/ring/asking.rs; a test holds
 * the two together. */
#pragma once

#include "shield_cookie_common.h"

/* Sources that have proved that they exist, with the second (coarse monotonic) of their last SYN. */
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

static __always_inline __u32 cookie_now(void)
{
	return bpf_ktime_get_coarse_ns() >> 30;
}

static __always_inline __u32 *cookie_known(const struct shield_packet *p)
{
	if (p->family == 4) {
		__u32 key = p->source[0];

		return bpf_map_lookup_elem(&known_v4, &key);
	}
	__u64 key = (__u64)p->source[0] << 32 | p->source[1];

	return bpf_map_lookup_elem(&known_v6, &key);
}

static __always_inline void cookie_learn(const struct shield_packet *p, __u32 now)
{
	if (p->family == 4) {
		__u32 key = p->source[0];

		bpf_map_update_elem(&known_v4, &key, &now, BPF_ANY);
	} else {
		__u64 key = (__u64)p->source[0] << 32 | p->source[1];

		bpf_map_update_elem(&known_v6, &key, &now, BPF_ANY);
	}
}

static __always_inline int cookie_gateway(struct xdp_md *ctx, struct shield_packet *p, struct shield_cookie_cpu *cpu,
					  struct tcphdr *tcp)
{
	__u8 flags = p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
	__u32 now = cookie_now(), number, *seen, off;
	struct shield_reply *reply = &cpu->work.reply;
	__be32 seq = tcp->seq;
	__s64 cookie;

	seen = cookie_known(p);
	if (seen && now - *seen < cookie_known_s) {
		if (flags == TCP_SYN) {
			cpu->count.known++;
			if (*seen != now)
				*seen = now;
		}
		return -1;
	}
	if (cookie_no_source(p) || (flags & TCP_SYN && flags & (TCP_RST | TCP_FIN))) {
		cpu->count.odd++;
		return XDP_DROP;
	}
	if (flags != TCP_SYN && flags != TCP_RST) {
		if (!cookie_strict)
			return -1;
		cpu->count.unknown++;
		return XDP_DROP;
	}
	cookie = cookie_make(&cpu->work, p, 0, 536);
	if (cookie < 0) {
		cpu->count.failed++;
		return XDP_DROP;
	}
	number = cookie;
	if (flags == TCP_RST) {
		off = bpf_ntohl(seq) - number;
		if (off != 0 && off != 0x80000000) {
			if (!cookie_strict)
				return -1;
			cpu->count.unknown++;
			return XDP_DROP;
		}
		cookie_learn(p, now);
		cpu->count.proved++;
		return XDP_DROP;
	}
	/* Not one that the client could take for right, not even with data in its SYN. */
	if (number - bpf_ntohl(seq) - 1 < 0x10000)
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

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The shield's own SYN cookies: a keyed hash (SipHash-2-4, https://www.aumasson.jp/siphash/siphash.pdf) of addresses, ports and the present
 * period, in a fifth of the time that the kernel's take; added to the client's sequence number. The lowest two bits of what is added are the number
 * of the client's MSS, the other 30 have to be guessed. A cookie is taken for one period to two.
 */
#pragma once

#include "filter/beat.h"
#include "filter/cookie/connected.h"
#include "filter/cookie/reply.h"

/* Random, the same for all programs that follow each other. */
const volatile __u64 cookie_key[2] = {};

/* A period is 2^36 ns: 69 s. */
#define COOKIE_PERIOD_SHIFT 36
/* The bits that are the number of an MSS. */
#define COOKIE_MSS_MASK 3

#define SIP_ROTATE(value, by) ((value) << (by) | (value) >> (64 - (by)))
#define SIP_ROUND(v0, v1, v2, v3)                                                                                     \
	do {                                                                                                          \
		v0 += v1, v2 += v3;                                                                                   \
		v1 = SIP_ROTATE(v1, 13) ^ v0, v3 = SIP_ROTATE(v3, 16) ^ v2;                                           \
		v0 = SIP_ROTATE(v0, 32);                                                                              \
		v2 += v1, v0 += v3;                                                                                   \
		v1 = SIP_ROTATE(v1, 17) ^ v2, v3 = SIP_ROTATE(v3, 21) ^ v0;                                           \
		v2 = SIP_ROTATE(v2, 32);                                                                              \
	} while (0)
#define SIP_WORD(v0, v1, v2, v3, word)                                                                                \
	do {                                                                                                          \
		v3 ^= (word);                                                                                         \
		SIP_ROUND(v0, v1, v2, v3);                                                                            \
		SIP_ROUND(v0, v1, v2, v3);                                                                            \
		v0 ^= (word);                                                                                         \
	} while (0)

static __always_inline __u64 cookie_period(void)
{
	return shield_now_ns() >> COOKIE_PERIOD_SHIFT;
}

/* SipHash-2-4 of source, destination (as on the wire), ports and period: 15 bytes, or 39 of IPv6. */
static __always_inline __u32 cookie_hash(const struct packet *p, __u64 period)
{
	__u64 v0 = cookie_key[0] ^ 0x736f6d6570736575ULL, v1 = cookie_key[1] ^ 0x646f72616e646f6dULL;
	__u64 v2 = cookie_key[0] ^ 0x6c7967656e657261ULL, v3 = cookie_key[1] ^ 0x7465646279746573ULL;
	__u64 last = (period & 0xffffff) << 32 | (__u32)p->destination_port << 16 | p->source_port;

	if (p->family == 4) {
		SIP_WORD(v0, v1, v2, v3, (__u64)p->destination[0] << 32 | p->source[0]);
		last |= 15ULL << 56;
	} else {
		SIP_WORD(v0, v1, v2, v3, (__u64)p->source[1] << 32 | p->source[0]);
		SIP_WORD(v0, v1, v2, v3, (__u64)p->source[3] << 32 | p->source[2]);
		SIP_WORD(v0, v1, v2, v3, (__u64)p->destination[1] << 32 | p->destination[0]);
		SIP_WORD(v0, v1, v2, v3, (__u64)p->destination[3] << 32 | p->destination[2]);
		last |= 39ULL << 56;
	}
	SIP_WORD(v0, v1, v2, v3, last);
	v2 ^= 0xff;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	return v0 ^ v1 ^ v2 ^ v3;
}

/* The cookie for a SYN with the sequence number `seq`, in host order, whose sender takes segments of `mss` bytes (0: it did not say). */
static __always_inline __u32 cookie_number(const struct packet *p, __u32 seq, __u16 mss)
{
	return seq + ((cookie_hash(p, cookie_period()) & ~COOKIE_MSS_MASK) | shield_kernel_mss_number(p->family, mss));
}

/* The MSS that a cookie of ours for that SYN stands for; 0: it is none, or too old. */
static __always_inline __u16 cookie_number_mss(const struct packet *p, __u32 seq, __u32 number)
{
	__u32 added = number - seq;
	__u64 period = cookie_period();

	if ((cookie_hash(p, period) ^ added) & ~COOKIE_MSS_MASK && (cookie_hash(p, period - 1) ^ added) & ~COOKIE_MSS_MASK)
		return 0;
	return shield_kernel_mss(p->family, added);
}

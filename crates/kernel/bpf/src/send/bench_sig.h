/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What each unit of the bench carries, in host order: both ends are this machine. It lies behind the transport header, and
 * in later fragments right behind the IP header. 18 bytes: what a 64-byte frame with IPv4 and UDP has room for. */
#pragma once

#include "lib/common.h"

/* The flow of probes: the far port sends them back as they came, addresses and ports swapped. */
#define BENCH_PROBE 0xffffffffU

struct bench_sig {
	/* The trial and the direction: drawn anew for each trial; the lowest bit is the direction, 1 backward. */
	__u16 tag;
	/* Number of the flow within its direction, from 0; BENCH_PROBE. */
	__u32 flow;
	/* Number of the unit within its flow, from 0. All fragments of a datagram bear the same. */
	__u32 seq;
	/* bpf_ktime_get_ns() at sending; 0 is a unit without a stamp. All fragments of a datagram bear the same. */
	__u64 stamp_ns;
} __attribute__((packed));

_Static_assert(sizeof(struct bench_sig) == 18, "the signature fills the least frame");

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For those who build a protocol on Ethernet: frames of one EtherType, delivered to the rings of endpoints, answered or dropped by reason,
 * before a socket buffer is made. link.bpf.c and barrier.bpf.c are two; docs/protocol/link-builders.md is how to make a third.
 *
 * Before including this a protocol defines
 *
 *   LINK_ETHERTYPE    its EtherType, in host order
 *   LINK_HEADER       its header's type: 4 to 64 bytes, a multiple of 4, numbers as on the wire
 *   LINK_ENDPOINTS    endpoints, a power of two; without it 65536
 *
 * and behind it three functions, and LINK_PROGRAM(its name). "clang: -mcpu=v3" stands in a comment of its file: rings take atomic exchange.
 */
#pragma once

#include <stdbool.h>

#include <linux/if_ether.h>

#include "chain/place.h"
#include "messages/ring.h"

/* What becomes of a frame. A hook gives one of them, or LINK_DROP(n) for a drop that counts under its own reason n. */
enum link_verdict {
	/* Copied into its endpoint's ring. */
	LINK_DELIVER,
	/* The header, as the hook has changed it, goes back with the same payload. */
	LINK_ANSWER,
	/* Goes up to the stack, as if there were no program. */
	LINK_PASS,
	/* Shorter than its header or its payload. */
	LINK_SHORT,
	/* Longer than LINK_FRAME_MAX. */
	LINK_LONG,
	/* Changed on its way. */
	LINK_CHECKSUM,
	/* The protocol's own reasons follow, LINK_REASONS of them. */
	LINK_REASON,
};

#define LINK_REASONS 8
#define LINK_DROP(n) (LINK_REASON + (n))

/* By CPU. */
struct link_count {
	__u64 delivered;
	__u64 answered;
	/* To the stack: of endpoints that nobody has. */
	__u64 no_endpoint;
	/* To the stack: to the address of another node. */
	__u64 elsewhere;
	/* To the stack: because the protocol says so. */
	__u64 passed;
	/* Dropped, all below. */
	__u64 full;
	__u64 too_short;
	__u64 too_long;
	__u64 checksum;
	__u64 reasons[LINK_REASONS];
};

PER_CPU(struct link_count, link_counts);

/* A frame as hooks see it. */
struct link_frame {
	/* Where the header begins in the Ethernet frame. */
	__u32 at;
	/* Bytes from there on; of a short frame padding counts. */
	__u32 left;
	/* Header and payload: the first hook says how many. */
	__u32 bytes;
	__u16 vlan;
	/* To all nodes or a group of them. */
	bool is_group;
	__u8 source[6];
};

/*
 * The three functions:
 *
 * 1. Is it right, and how long is it? Sets f->bytes; LINK_DELIVER, or why it is dropped. The header is there in full, and nothing of it is
 *    believed. What is longer than the frame or LINK_FRAME_MAX is found out behind it.
 *      static __always_inline __u32 link_validate(struct link_frame *f, const LINK_HEADER *h);
 * 2. Whose is it? The endpoint's number.
 *      static __always_inline __u32 link_endpoint(const LINK_HEADER *h);
 * 3. What is done with it? Any enum link_verdict, or LINK_DROP. Here a checksum is looked at (link_is_whole) and a state is kept; a message to
 *    an endpoint in place of the frame is sent by link_notify. For LINK_ANSWER it has changed the header.
 *      static __always_inline __u32 link_handle(struct xdp_md *ctx, struct link_frame *f, LINK_HEADER *h);
 */
_Static_assert(sizeof(LINK_HEADER) >= 4 && sizeof(LINK_HEADER) <= 64 && sizeof(LINK_HEADER) % 4 == 0,
	       "a header of 4 to 64 bytes, a multiple of 4");

static __always_inline __u32 link_validate(struct link_frame *f, const LINK_HEADER *h);
static __always_inline __u32 link_endpoint(const LINK_HEADER *h);
static __always_inline __u32 link_handle(struct xdp_md *ctx, struct link_frame *f, LINK_HEADER *h);

#include "messages/frame.h"
#include "messages/copy.h"

/* Sends an endpoint `thing`, of constant size, from the sender of `f`. */
#define link_notify(f, endpoint, thing)                                                        \
	({                                                                                     \
		struct {                                                                       \
			struct link_record head;                                               \
			typeof(thing) body;                                                    \
		} *record;                                                                     \
		__u32 to = (endpoint) & (LINK_ENDPOINTS - 1);                                  \
		struct link_ring_state *state;                                                 \
		void *ring = link_ring_at(to, &state);                                         \
                                                                                               \
		record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record), 0) : 0;             \
		if (record) {                                                                  \
			link_head(&record->head, f, sizeof(thing));                            \
			record->body = (thing);                                                \
			bpf_ringbuf_submit(record, link_wakeup_flag(state));                   \
		} else if (ring) {                                                             \
			link_count_full(state);                                                \
		}                                                                              \
		record != 0;                                                                   \
	})

/* The program: what is not for this protocol goes on to the next one in the place, and then down the chain. */
#define LINK_PROGRAM(name)                                                                     \
	SEC("xdp.frags")                                                                       \
	int name(struct xdp_md *ctx)                                                           \
	{                                                                                      \
		int verdict = link_run(ctx);                                                   \
                                                                                               \
		if (verdict != LINK_GOES_ON)                                                   \
			return verdict;                                                        \
		bpf_tail_call(ctx, &link_next, 0);                                             \
		chain_go_on(ctx, CHAIN_LINK);                                                  \
		return XDP_PASS;                                                               \
	}

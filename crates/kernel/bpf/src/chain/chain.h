/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs of one interface share: the places of its chain, and what they tell each other of a frame. */
#pragma once

#include "lib/verifier.h"

/* Places, in the order in which frames pass them. */
enum chain_place {
	CHAIN_BEFORE,
	CHAIN_FILTER,
	CHAIN_BEHIND,
	CHAIN_CROSSING,
	CHAIN_ROUTE,
	CHAIN_LINK,
	CHAIN_END,
	CHAIN_PLACES,
};

/* A program array of one entry is a place: so the kernel empties it with its owner. What follows behind each place is another array, which
 * every user holds: by enum chain_place what is called, nothing while all places behind are empty; and the same programs again, from
 * CHAIN_KEPT on, for whoever fills one. */
#define CHAIN_KEPT CHAIN_PLACES
#define CHAIN_RESTS (2 * CHAIN_PLACES)

#define CHAIN_ARRAY(name, entries)                     \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY); \
		__uint(max_entries, entries);          \
		__type(key, __u32);                    \
		__type(value, __u32);                  \
	} name SEC(".maps")

/* A verdict in a word: what became of the frame (enum xdp_action), why, and the number of the rule's counter plus 1. Never 0. */
#define CHAIN_JUDGED (1U << 31)
#define CHAIN_WORD(why, action, counter_plus_1) (CHAIN_JUDGED | (why) << 20 | (action) << 16 | (counter_plus_1))

enum chain_why {
	CHAIN_RULE,
	CHAIN_LIMIT,
	CHAIN_CHALLENGE,
	CHAIN_DEFAULT,
	CHAIN_MALFORMED,
	CHAIN_NOT_IP,
	CHAIN_NO_HEARTBEAT,
};

/* One line per CPU, written by its softirq alone. */
struct chain_cpu {
	/* The frame of this moment was recorded before the filter, which is to say what becomes of it. */
	__u32 ask;
	/* The verdict on the frame that was recorded last; 0: none yet. */
	__u32 verdict;
	/* The verdict by which the frame of this moment passed; 0: nobody judged it. */
	__u32 passed;
	__u32 pad[13];
};

struct chain_state {
	/* Written by user space: a capture before the filter, and one behind it, wants verdicts. */
	__u32 before;
	__u32 behind;
	/* The ids of the programs that were put in places last. */
	__u32 users[CHAIN_PLACES];
	__u32 pad[7];
	/* By CPU; user space has made room for all. */
	struct chain_cpu cpu[1];
};

/* A rule's name as the shield shows it, ended by 0. */
struct chain_name {
	char text[64];
};

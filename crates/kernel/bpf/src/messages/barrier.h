/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the nodes of a barrier send each other, and what the program keeps of it. */
#pragma once

#include "lib/common.h"

#define BARRIER_GROUPS 64
#define BARRIER_NODES 32

/* 16 bytes. Rounds begin with 1. */
struct barrier_frame {
	__be16 group;
	__u8 node;
	__u8 pad;
	__be32 epoch;
	__be32 round;
	__be32 value;
};

/* Rounds of one parity. */
struct barrier_slot {
	/* The round that was complete last, and its sum. */
	__u64 completed;
	__u64 sum;
	/* By node: the round that it has come to, and in the lower half its value. */
	__u64 cells[BARRIER_NODES];
};

/* Written by user space but for the slots. */
struct barrier_group {
	__u32 epoch;
	/* Those that are waited for, a bit each. */
	__u32 nodes;
	struct barrier_slot slots[2];
};

/* Message to an endpoint. */
struct barrier_done {
	__u32 epoch;
	__u32 round;
	__u64 sum;
};

/* User space learns the layout of what is in no map by this. */
struct barrier_layout {
	struct barrier_frame frame;
	struct barrier_done done;
};
const volatile struct barrier_layout barrier_layout = {};

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The memory that the tap shares with its reader: per CPU a control block and a ring of segments.
 *
 * A position counts bytes since the start and never goes back. Its low SEGMENT_BITS bits say where in a segment it is, the bits above
 * them which segment (modulo the number of segments). A record may run past the nominal end of its segment into the slack
 * behind it; the next one then begins in the next segment.
 */
#pragma once

#include <linux/types.h>

#define TAP_SEGMENT_BITS 20
#define TAP_SEGMENT_BYTES (1 << TAP_SEGMENT_BITS)
/* The longest part of a frame that is kept. */
#define TAP_SNAPLEN_MAX 65536
#define TAP_RECORD_ALIGN 8

/* What stands before the bytes of a frame. */
struct tap_record {
	__u64 tai_ns; /* CLOCK_TAI at which the program saw the frame */
	__u32 wire_len; /* length of the frame in bytes */
	__u32 kept; /* bytes of it that follow */
	__u32 lost; /* frames this CPU had lost when the record was written, modulo 2^32 */
	/* a word as in chain/chain.h: before the filter what became of the frame of the record before; behind it why this one passed; 0: not told */
	__u32 verdict;
};

/* One segment of a CPU's ring, an element of the array; the records lie one behind the other from `first` on. */
struct tap_segment {
	struct tap_record first;
	__u8 rest[TAP_SEGMENT_BYTES + TAP_SNAPLEN_MAX];
};

/* The control block of one CPU: a part that only the program writes and a part that only the reader writes, two cache lines apart
 * because processors fetch lines in pairs. */
struct tap_control {
	__u64 head; /* written: where the next record goes */
	__u64 seen_tail; /* the program's copy of the reader's tail */
	__u64 records; /* frames kept */
	__u64 lost; /* frames for which there was no room, or that could not be read */
	__u64 stamp_ns; /* the time that frames of this NAPI poll get; 0: not taken yet */
	__u64 stamp_jiffies; /* the kernel's tick at which it was taken */
	__u64 since_poll; /* frames since a NAPI poll ended on this CPU */
	__u64 pad0[9];
	__u64 tail; /* the reader's: everything before it may be overwritten */
	__u64 pad1[15];
} __attribute__((aligned(128)));

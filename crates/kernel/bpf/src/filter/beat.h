/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The heartbeat of the process that controls the shield. */
#pragma once

#include "lib/common.h"

/* For how long in ns it may stop; 0: nobody listens to it. */
const volatile __u64 shield_beat_ns = 0;

/* Written by user space; shared by all programs that follow each other. */
struct shield_beat {
	/* CLOCK_MONOTONIC in ns. */
	__u64 at_ns;
	/* Of the shared maps' meaning; what shield_seed is to be. */
	__u64 version;
	__u64 seed;
	__u64 pad[5];
} shield_beat SEC(".data.sh_beat") = {};

/* The time in ns, late by a beat or two: a load in the place of a call. */
static __always_inline __u64 shield_now_ns(void)
{
	return shield_beat_ns ? *(volatile __u64 *)&shield_beat.at_ns : bpf_ktime_get_coarse_ns();
}

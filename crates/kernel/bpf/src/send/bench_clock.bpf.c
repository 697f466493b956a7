/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the clock of the bench's stamps many times in a row, so that user space sees what a reading costs and how fine it is. */
#include "lib/common.h"

#define BENCH_READINGS 1024

__u64 bench_readings[BENCH_READINGS];

SEC("xdp")
int ek_bench_clock(struct xdp_md *ctx)
{
	for (__u32 i = 0; i < BENCH_READINGS; i++)
		bench_readings[i] = bpf_ktime_get_ns();
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counts every frame and its bytes and ends it: the cheapest receiver there is. */
#include "lib/common.h"

/* Counts of one CPU. */
struct drop_count {
	__u64 frames;
	__u64 bytes;
};

PER_CPU(struct drop_count, drop_counts);

SEC("xdp.frags")
int xdp_drop(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct drop_count *count = bpf_map_lookup_elem(&drop_counts, &zero);

	if (count) {
		count->frames++;
		count->bytes += bpf_xdp_get_buff_len(ctx);
	}
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";

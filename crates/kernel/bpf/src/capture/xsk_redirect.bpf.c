/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hands each frame to the AF_XDP socket of its receive queue. A frame of a queue without a socket goes on to the stack and is counted,
 * so that nobody mistakes it for captured. What a socket loses (no room in its rings) the socket counts itself.
 */
#include "lib/common.h"

/* Counts of one CPU. */
struct xsk_count {
	__u64 redirected; /* frames for which the queue had a socket */
	__u64 passed; /* frames of a queue without a socket */
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64); /* queues, set at load time */
	__type(key, __u32);
	__type(value, __u32);
} xsk_sockets SEC(".maps");

PER_CPU(struct xsk_count, xsk_counts);

SEC("xdp")
int xsk_redirect(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct xsk_count *count = bpf_map_lookup_elem(&xsk_counts, &zero);
	int verdict = bpf_redirect_map(&xsk_sockets, ctx->rx_queue_index, XDP_PASS);

	if (count) {
		if (verdict == XDP_REDIRECT)
			count->redirected++;
		else
			count->passed++;
	}
	return verdict;
}

char _license[] SEC("license") = "Dual BSD/GPL";

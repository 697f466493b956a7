/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counts the frames that are lost between a port's receiving core and the CPUs that forward: the kernel tells of them by tracepoints alone. */
#include "lib/common.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "route/route.h"

/* By the number of a port's CPU map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ROUTE_PORTS);
	__type(key, __u32);
	__type(value, struct route_loss);
} route_losses SEC(".maps");

SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(route_queue_full, int map, unsigned int processed, unsigned int dropped, int to_cpu)
{
	struct route_loss *loss;

	/* Nearly always, and before anything that costs. */
	if (!dropped)
		return 0;
	loss = bpf_map_lookup_elem(&route_losses, &map);
	if (loss)
		__sync_fetch_and_add(&loss->queue_full, dropped);
	return 0;
}

/* Of include/net/xdp.h (5.9). */
struct xdp_cpumap_stats {
	unsigned int drop;
} __attribute__((preserve_access_index));

SEC("tp_btf/xdp_cpumap_kthread")
int BPF_PROG(route_not_taken, int map, unsigned int processed, unsigned int no_memory, int sched, struct xdp_cpumap_stats *stats)
{
	__u32 not_sent = BPF_CORE_READ(stats, drop);
	struct route_loss *loss;

	if (!no_memory && !not_sent)
		return 0;
	loss = bpf_map_lookup_elem(&route_losses, &map);
	if (!loss)
		return 0;
	__sync_fetch_and_add(&loss->no_memory, no_memory);
	__sync_fetch_and_add(&loss->not_sent, not_sent);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* clang: -mcpu=v3 */
/*
 * The core that receives a port's frames steers their flows to the CPUs that forward: each flow to one, both directions to the same. There
 * ek_route runs as the program of a CPU map, in whatever mode.
 *
 * A program of its own in the port's place: without such CPUs, frames meet ek_route itself and pay nothing for this.
 */
#include "chain/place.h"
#include "route/flow_hash.h"
#include "route/partial_csum.h"

/* By the CPU's number. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} route_cpus SEC(".maps");

/* ek_route, for what stays here. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} route_local SEC(".maps");

SEC("xdp.frags")
int ek_route_steer(struct xdp_md *ctx)
{
	__u32 bucket = route_frame_bucket(ctx), zero = 0;
	struct route_count *count;

	/* A frame without its socket buffer is one that the kernel does not finish any more. */
	if (route_partial_csum && bucket < ROUTE_BUCKETS && route_is_partial_csum(ctx))
		bucket = ROUTE_NO_BUCKET;
	count = bpf_map_lookup_elem(&route_counts, &zero);
	if (count && bucket < ROUTE_BUCKETS) {
		/* A CPU that was just taken out of the map has no queue: its frames are forwarded here. */
		if (bpf_redirect_map(&route_cpus, route_config.reta.cpu[bucket], XDP_PASS) == XDP_REDIRECT) {
			count->enqueued++;
			return XDP_REDIRECT;
		}
	}
	bpf_tail_call(ctx, &route_local, 0);
	chain_go_on(ctx, CHAIN_ROUTE);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

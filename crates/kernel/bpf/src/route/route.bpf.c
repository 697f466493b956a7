/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* clang: -mcpu=v3 */
/*
 * A router's port: forwards frames by the kernel's own tables before a socket buffer is made. Whatever the kernel has to see goes up to it,
 * each reason with a counter of its own.
 *
 * The kernel is asked once for each next hop (bpf_fib_lookup), and its answer is remembered by each CPU for itself, until the generation
 * changes, at each change of routes, neighbours and interfaces, by programs that the kernel's own functions call (route_watch.bpf.c), and for
 * some seconds at the most.
 *
 * The same program, loaded as one of a CPU map, takes the frames that a port's receiving core handed on (route_spread.bpf.c).
 */
#include "route/decide.h"
#include "route/send.h"
#include "route/shadow.h"

/* The program of mode stateful, if it was wanted. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} route_more SEC(".maps");

/* Loaded for the queues of the CPUs that forward: frames come out of one. */
const volatile bool route_from_queue = false;

SEC("xdp.frags")
int ek_route(struct xdp_md *ctx)
{
	struct route_decision d = {};
	struct route_count *count;
	__u32 zero = 0, mode = *(volatile __u32 *)&route_config.mode;
	__u64 end;

	if (route_from_queue) {
		count = bpf_map_lookup_elem(&route_counts, &zero);
		if (count)
			count->taken++;
	}
	if (mode == ROUTE_STANDARD)
		goto up;
	if (mode & ROUTE_STATEFUL) {
		bpf_tail_call(ctx, &route_more, 0);
		goto up;
	}
	count = bpf_map_lookup_elem(&route_counts, &zero);
	if (!count)
		goto up;
	route_decide(ctx, count, &d);
	if (route_unfinished && d.is_suspect && d.end == ROUTE_FORWARDED && route_is_unfinished(ctx))
		d.end = ROUTE_UNFINISHED;
	if (d.end == ROUTE_FORWARDED) {
		if (mode == ROUTE_SHADOW) {
			count->shadowed++;
			route_write_down(ctx, count, &d);
			goto up;
		}
		if (route_rewrite(ctx, &d)) {
			count->forwarded++;
			count->forwarded_bytes += d.ip_len + sizeof(struct ethhdr);
			return bpf_redirect_map(&route_ports, d.port, 0);
		}
		d.end = ROUTE_NOT_A_PORT;
	}
	end = d.end;
	keep(end);
	if (end < ROUTE_ENDS)
		((__u64 *)count)[end]++;
up:
	chain_go_on(ctx, CHAIN_ROUTE);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

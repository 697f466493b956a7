/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* clang: -mcpu=v3 */
/*
 * A router's port in mode stateful: nftables decides about new connections, and the packets of established ones that a rule marked are
 * forwarded and translated here. Its connection is read for each packet, so that what is deleted, or loses its mark, is not forwarded any more.
 *
 * A program of its own: the one of mode routed hands frames over to it, and pays nothing for what only this one needs.
 */
#define ROUTE_TRACKS
#include "route/decide.h"
#include "route/send.h"
#include "route/shadow.h"

SEC("xdp.frags")
int ek_route_state(struct xdp_md *ctx)
{
	struct route_decision d = {};
	struct route_count *count;
	__u32 zero = 0, mode = *(volatile __u32 *)&route_config.mode;
	__u64 *field;

	count = bpf_map_lookup_elem(&route_counts, &zero);
	if (!count)
		goto up;
	d.shadow = mode & ROUTE_SHADOW;
	route_decide(ctx, count, &d);
	/* From there again: a pointer that is kept beside it takes stack of which three calls have 512 bytes. */
	count = d.count;
	if (!count)
		goto up;
	if (d.end == ROUTE_FORWARDED && d.leaves && d.leaves != d.ifindex)
		/* A masqueraded connection whose way out is another one now: the kernel ends it. */
		d.end = ROUTE_MOVED;
	if (route_unfinished && d.is_suspect && d.end == ROUTE_FORWARDED && route_is_unfinished(ctx))
		d.end = ROUTE_UNFINISHED;
	if (d.end == ROUTE_FORWARDED) {
		if (d.shadow) {
			count->shadowed++;
			route_write_down(ctx, count, &d);
			goto up;
		}
		if (route_rewrite(ctx, &d)) {
			count->forwarded++;
			count->forwarded_bytes += d.ip_len + sizeof(struct ethhdr);
			count->translated += d.nat != 0;
			return bpf_redirect_map(&route_ports, d.port, 0);
		}
		d.end = ROUTE_NOT_A_PORT;
	}
	field = (__u64 *)count + (d.end & 31);
	if (d.end < ROUTE_ENDS)
		*field += 1;
up:
	chain_go_on(ctx, CHAIN_ROUTE);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

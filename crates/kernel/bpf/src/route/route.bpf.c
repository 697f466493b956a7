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
 * The same program, loaded as one of a CPU map, takes the frames that a port's receiving core handed on (route_steer.bpf.c).
 */
#include "route/frame.h"
#include "route/rewrite.h"
#include "route/shadow.h"

/* The program of mode stateful, if it was wanted. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} route_stateful SEC(".maps");

/* Loaded for the queues of the CPUs that forward: frames come out of one. */
const volatile bool route_from_queue = false;

/* The ports, where the next hop depends on them; `left` bytes of the packet are behind the IP header. False: it cannot be told here. */
static __always_inline bool route_parse_ports(struct route_key *k, struct cursor *c, __u8 protocol, __u32 left)
{
	__be32 *ports;

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP && protocol != IPPROTO_SCTP && protocol != IPPROTO_DCCP)
		return protocol != IPPROTO_ESP && protocol != IPPROTO_AH;
	/* What follows the packet in its frame is not a port. */
	ports = cursor_take(c, sizeof(*ports));
	if (!ports || left < sizeof(*ports))
		return false;
	k->ports = *ports;
	return true;
}

static __always_inline enum route_verdict route_decide_v4(struct xdp_md *ctx, struct cursor c, struct route_decision *d, struct route_key *k)
{
	struct iphdr *ip = cursor_take(&c, sizeof(*ip));
	enum route_verdict verdict = route_parse_v4(ctx, &c, ip, d, k);
	__u32 by = k->by;

	if (verdict != ROUTE_FORWARDED)
		return verdict;
	if (by & (ROUTE_BY_PORTS | ROUTE_BY_SOURCE)) {
		if (by & ROUTE_BY_PORTS) {
			if (ip->frag_off & bpf_htons(ROUTE_MORE_FRAGMENTS | ROUTE_FRAGMENT_OFFSET))
				return ROUTE_FRAGMENT;
			if (!route_parse_ports(k, &c, ip->protocol, d->ip_len - sizeof(*ip)))
				return ROUTE_BAD_HEADER;
		}
		if (ip->protocol == IPPROTO_ICMP && route_is_icmp_error(&c, false))
			return ROUTE_ICMP_ERROR;
	}
	return route_lookup(ctx, d, k, 4, 0);
}

static __always_inline enum route_verdict route_decide_v6(struct xdp_md *ctx, struct cursor c, struct route_decision *d, struct route_key *k)
{
	struct ipv6hdr *ip = cursor_take(&c, sizeof(*ip));
	enum route_verdict verdict = route_parse_v6(ctx, &c, ip, d, k);
	__u32 by = k->by;

	if (verdict != ROUTE_FORWARDED)
		return verdict;
	if (by & (ROUTE_BY_PORTS | ROUTE_BY_SOURCE)) {
		if (by & ROUTE_BY_PORTS) {
			if (ip->nexthdr == IPPROTO_FRAGMENT || ip->nexthdr == IPPROTO_DSTOPTS)
				return ROUTE_FRAGMENT;
			if (!route_parse_ports(k, &c, ip->nexthdr, d->ip_len - sizeof(*ip)))
				return ROUTE_BAD_HEADER;
		}
		if (ip->nexthdr == ROUTE_ICMPV6 && route_is_icmp_error(&c, true))
			return ROUTE_ICMP_ERROR;
	}
	return route_lookup(ctx, d, k, 6, 0);
}

/* Fills in `d`. */
static __always_inline void route_decide(struct xdp_md *ctx, struct route_count *count, struct route_decision *d)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct route_key k = { .iif = route_ifindex, .by = *(volatile __u32 *)&route_config.key };
	__u16 family;

	d->count = count;
	if (!route_parse_frame(ctx, &c, d, &k, &family))
		return;
	if (family == bpf_htons(ETH_P_IP))
		d->verdict = route_decide_v4(ctx, c, d, &k);
	else if (family == bpf_htons(ETH_P_IPV6))
		d->verdict = route_decide_v6(ctx, c, d, &k);
	d->family = family;
}

static __noinline int route_sample_frame(struct xdp_md *ctx, struct route_count *count, struct route_decision *d)
{
	return count && d ? route_sample_of(ctx, count, d, 0) : 0;
}

SEC("xdp.frags")
int ek_route(struct xdp_md *ctx)
{
	struct route_decision d = {};
	struct route_count *count;
	__u32 zero = 0, mode = *(volatile __u32 *)&route_config.mode;
	__u64 verdict;

	if (route_from_queue) {
		count = bpf_map_lookup_elem(&route_counts, &zero);
		if (count)
			count->dequeued++;
	}
	if (mode == ROUTE_STANDARD)
		goto up;
	if (mode & ROUTE_STATEFUL) {
		bpf_tail_call(ctx, &route_stateful, 0);
		goto up;
	}
	count = bpf_map_lookup_elem(&route_counts, &zero);
	if (!count)
		goto up;
	route_decide(ctx, count, &d);
	if (route_partial_csum && d.may_be_partial_csum && d.verdict == ROUTE_FORWARDED && route_is_partial_csum(ctx))
		d.verdict = ROUTE_PARTIAL_CHECKSUM;
	if (d.verdict == ROUTE_FORWARDED) {
		if (mode == ROUTE_SHADOW) {
			count->shadowed++;
			route_sample_frame(ctx, count, &d);
			goto up;
		}
		if (route_rewrite(ctx, &d, 0)) {
			count->forwarded++;
			count->forwarded_bytes += d.ip_len + sizeof(struct ethhdr);
			return bpf_redirect_map(&route_ports, d.port, 0);
		}
		d.verdict = ROUTE_NOT_A_PORT;
	}
	verdict = d.verdict;
	keep(verdict);
	if (verdict < ROUTE_VERDICTS)
		((__u64 *)count)[verdict]++;
up:
	chain_go_on(ctx, CHAIN_ROUTE);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* clang: -mcpu=v3 */
/*
 * A router's port in mode stateful: nftables decides about new connections, and the packets of established ones that a rule marked are
 * forwarded and translated here. Its connection is read for each packet, so that what is deleted, or loses its mark, is not forwarded any more.
 *
 * A program of its own: the one of mode routed hands frames over to it, and pays nothing for what only this one needs.
 */
#include "route/frame.h"
#include "route/rewrite.h"
#include "route/shadow.h"
#include "route/track.h"

static __always_inline enum route_verdict route_decide_v4(struct xdp_md *ctx, struct cursor c, struct route_tracked *t, struct route_key *k)
{
	struct iphdr *ip = cursor_take(&c, sizeof(*ip));
	enum route_verdict verdict = route_parse_v4(ctx, &c, ip, &t->d, k);

	if (verdict != ROUTE_FORWARDED)
		return verdict;
	/* The kernel puts them together before it looks for the connection. */
	if (ip->frag_off & bpf_htons(ROUTE_MORE_FRAGMENTS | ROUTE_FRAGMENT_OFFSET))
		return ROUTE_FRAGMENT;
	if (ip->protocol == IPPROTO_ICMP && route_is_icmp_error(&c, false))
		return ROUTE_ICMP_ERROR;
	verdict = route_track(ctx, &c, t, k, t->d.ip_len - sizeof(*ip), false);
	if (verdict != ROUTE_FORWARDED || t->is_cached)
		return verdict;
	verdict = route_lookup(ctx, &t->d, k, 4, &t->nexthop);
	if (verdict == ROUTE_FORWARDED)
		route_conn_commit(t, k->to, false);
	return verdict;
}

static __always_inline enum route_verdict route_decide_v6(struct xdp_md *ctx, struct cursor c, struct route_tracked *t, struct route_key *k)
{
	struct ipv6hdr *ip = cursor_take(&c, sizeof(*ip));
	enum route_verdict verdict = route_parse_v6(ctx, &c, ip, &t->d, k);

	if (verdict != ROUTE_FORWARDED)
		return verdict;
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return ROUTE_FRAGMENT;
	if (ip->nexthdr == ROUTE_ICMPV6 && route_is_icmp_error(&c, true))
		return ROUTE_ICMP_ERROR;
	verdict = route_track(ctx, &c, t, k, t->d.ip_len - sizeof(*ip), true);
	if (verdict != ROUTE_FORWARDED || t->is_cached)
		return verdict;
	verdict = route_lookup(ctx, &t->d, k, 6, &t->nexthop);
	if (verdict == ROUTE_FORWARDED)
		route_conn_commit(t, k->to, true);
	return verdict;
}

/* Fills in `t`. */
static __always_inline void route_decide(struct xdp_md *ctx, struct route_count *count, struct route_tracked *t)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct route_key k = { .iif = route_ifindex, .by = *(volatile __u32 *)&route_config.key };
	__u16 family;

	t->d.count = count;
	if (!route_parse_frame(ctx, &c, &t->d, &k, &family))
		return;
	if (family == bpf_htons(ETH_P_IP))
		t->d.verdict = route_decide_v4(ctx, c, t, &k);
	else if (family == bpf_htons(ETH_P_IPV6))
		t->d.verdict = route_decide_v6(ctx, c, t, &k);
	t->d.family = family;
}

static __noinline int route_sample_frame(struct xdp_md *ctx, struct route_count *count, struct route_tracked *t)
{
	return count && t ? route_sample_of(ctx, count, &t->d, t->nat) : 0;
}

SEC("xdp.frags")
int ek_route_state(struct xdp_md *ctx)
{
	struct route_tracked t = {};
	struct route_count *count;
	__u32 zero = 0, mode = *(volatile __u32 *)&route_config.mode;
	__u64 *field;

	count = bpf_map_lookup_elem(&route_counts, &zero);
	if (!count)
		goto up;
	t.shadow = mode & ROUTE_SHADOW;
	route_decide(ctx, count, &t);
	/* From there again: a pointer that is kept beside it takes stack of which three calls have 512 bytes. */
	count = t.d.count;
	if (!count)
		goto up;
	if (t.d.verdict == ROUTE_FORWARDED && t.masq_ifindex && t.masq_ifindex != t.d.ifindex)
		/* A masqueraded connection whose way out is another one now: the kernel ends it. */
		t.d.verdict = ROUTE_OIF_CHANGED;
	if (route_partial_csum && t.d.may_be_partial_csum && t.d.verdict == ROUTE_FORWARDED && route_is_partial_csum(ctx))
		t.d.verdict = ROUTE_PARTIAL_CHECKSUM;
	if (t.d.verdict == ROUTE_FORWARDED) {
		if (t.shadow) {
			count->shadowed++;
			route_sample_frame(ctx, count, &t);
			goto up;
		}
		if (route_rewrite(ctx, &t.d, &t.nat)) {
			count->forwarded++;
			count->forwarded_bytes += t.d.ip_len + sizeof(struct ethhdr);
			count->translated += t.nat != 0;
			return bpf_redirect_map(&route_ports, t.d.port, 0);
		}
		t.d.verdict = ROUTE_NOT_A_PORT;
	}
	field = (__u64 *)count + (t.d.verdict & 31);
	if (t.d.verdict < ROUTE_VERDICTS)
		*field += 1;
up:
	chain_go_on(ctx, CHAIN_ROUTE);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Makes of a frame that came what leaves: addresses, hops, tag, length. */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "lib/cursor.h"
#include "route/nexthop_cache.h"
#include "route/nat.h"

/* Bytes of the smallest frame, without FCS. */
#define ROUTE_SMALLEST 60

/* One hop less: the checksum of the header changes by the same 0x0100, in network order (RFC 1624). */
static __always_inline void route_decrease_ttl(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = (__u16)(sum + (sum >= 0xffff));
	ip->ttl--;
}

/* Takes the tag off, puts one on, or writes another. */
static __always_inline bool route_retag(struct xdp_md *ctx, const struct route_decision *d)
{
	int more = (d->in_tag == ROUTE_NO_TAG ? 4 : 0) - (d->out_tag == ROUTE_NO_TAG ? 4 : 0);
	struct ethhdr *eth;
	__be16 *tag;

	if (more && bpf_xdp_adjust_head(ctx, -more))
		return false;
	eth = (void *)(long)ctx->data;
	tag = (void *)(eth + 1);
	if ((void *)(tag + 2) > (void *)(long)ctx->data_end)
		return false;
	if (d->out_tag == ROUTE_NO_TAG) {
		eth->h_proto = d->family;
		return true;
	}
	eth->h_proto = bpf_htons(ETH_P_8021Q);
	tag[0] = bpf_htons(d->out_tag);
	tag[1] = d->family;
	return true;
}

/* `nat`, unless it is 0, is its translation. False: the frame goes up as it came. */
static __always_inline bool route_rewrite(struct xdp_md *ctx, const struct route_decision *d, struct route_nat *const *nat)
{
	__u32 end = d->ip_at + d->ip_len, at = sizeof(struct ethhdr);
	struct ipv6hdr *ip6;
	struct ethhdr *eth;
	struct iphdr *ip;

	/* Also from a VLAN to the one of the same id: what else the tag holds is the sender's alone, and a VLAN device does not send it on. */
	if (d->in_tag != d->out_tag || d->out_tag != ROUTE_NO_TAG) {
		if (!route_retag(ctx, d))
			return false;
		end += (d->in_tag == ROUTE_NO_TAG ? 4 : 0) - (d->out_tag == ROUTE_NO_TAG ? 4 : 0);
	}
	if (d->out_tag != ROUTE_NO_TAG)
		at += 4;
	eth = (void *)(long)ctx->data;
	ip = (void *)eth + at;
	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return false;
	if (nat && *nat && !route_translate(ip, (void *)(long)ctx->data_end, d->family == bpf_htons(ETH_P_IP), *nat))
		return false;
	if (d->family == bpf_htons(ETH_P_IP)) {
		route_decrease_ttl(ip);
	} else {
		ip6 = (void *)ip;
		ip6->hop_limit--;
	}
	__builtin_memcpy(eth, d->macs, sizeof(d->macs));
	/* What follows the packet is not the packet's: the kernel does not send it on either. */
	if (end < ROUTE_SMALLEST)
		end = ROUTE_SMALLEST;
	if (end < ctx->data_end - ctx->data)
		bpf_xdp_adjust_tail(ctx, (int)(end - (ctx->data_end - ctx->data)));
	return true;
}

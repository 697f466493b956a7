/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The bucket of a frame's flow: the same for both directions, and for all frames of a flow that the kernel could forward. */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "route/address.h"

/* No bucket: the frame stays on the core that received it. */
#define ROUTE_NO_BUCKET ROUTE_BUCKETS

static __always_inline __u64 route_scramble(__u64 word)
{
	word ^= word >> 32;
	word *= 0x9e3779b97f4a7c15ULL;
	return word ^ word >> 29;
}

/* Both ends in an order that does not depend on who sent. */
static __always_inline __u32 route_bucket(__u64 a, __u64 b, __u8 protocol)
{
	__u64 first = a < b ? a : b, last = a < b ? b : a;
	__u64 hash = route_scramble(first ^ route_config.reta.seed);

	hash = route_scramble(hash + last);
	hash = route_scramble(hash ^ protocol);
	return hash >> 56;
}

/* The ports of a packet that is in one piece; 0 without any. */
static __always_inline __u32 route_flow_ports(struct cursor *c, __u8 protocol)
{
	__be32 *ports;

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP && protocol != IPPROTO_SCTP && protocol != IPPROTO_DCCP)
		return 0;
	ports = cursor_take(c, sizeof(*ports));
	return ports ? *ports : 0;
}

static __always_inline __u32 route_bucket_v4(struct cursor *c)
{
	struct iphdr *ip = cursor_take(c, sizeof(*ip));
	__u32 ports = 0;

	if (!ip || *(__u8 *)ip != 0x45 || ip->ttl <= 1 || route_is_martian_v4(ip->daddr) || route_may_be_local(ip->daddr))
		return ROUTE_NO_BUCKET;
	/* The pieces of a packet do not all have ports. */
	if (!(ip->frag_off & bpf_htons(ROUTE_MORE_FRAGMENTS | ROUTE_FRAGMENT_OFFSET)))
		ports = route_flow_ports(c, ip->protocol);
	return route_bucket((__u64)ip->saddr << 16 | (__u16)ports, (__u64)ip->daddr << 16 | ports >> 16, ip->protocol);
}

static __always_inline __u64 route_fold(const struct in6_addr *address)
{
	const __u32 *word = address->in6_u.u6_addr32;

	return route_scramble((__u64)word[0] << 32 | word[1]) + ((__u64)word[2] << 32 | word[3]);
}

static __always_inline __u32 route_bucket_v6(struct cursor *c)
{
	struct ipv6hdr *ip = cursor_take(c, sizeof(*ip));
	__u32 ports;

	if (!ip || ip->version != 6 || ip->hop_limit <= 1 || ip->nexthdr == IPPROTO_HOPOPTS || ip->nexthdr == IPPROTO_ROUTING ||
	    route_is_martian_v6(&ip->daddr))
		return ROUTE_NO_BUCKET;
	ports = route_flow_ports(c, ip->nexthdr);
	return route_bucket(route_fold(&ip->saddr) ^ (__u16)ports, route_fold(&ip->daddr) ^ ports >> 16, ip->nexthdr);
}

/* The bucket of a frame for this router that it may forward; all others stay. */
static __always_inline __u32 route_frame_bucket(struct xdp_md *ctx)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct ethhdr *eth = cursor_take(&c, sizeof(*eth));
	__u16 ethertype, *tag;

	if (!eth || !route_is_own_mac(eth))
		return ROUTE_NO_BUCKET;
	ethertype = eth->h_proto;
	if (ethertype == bpf_htons(ETH_P_8021Q)) {
		tag = cursor_take(&c, ROUTE_TAG_BYTES);
		if (!tag)
			return ROUTE_NO_BUCKET;
		ethertype = tag[1];
	}
	if (ethertype == bpf_htons(ETH_P_IP))
		return route_bucket_v4(&c);
	if (ethertype == bpf_htons(ETH_P_IPV6))
		return route_bucket_v6(&c);
	return ROUTE_NO_BUCKET;
}

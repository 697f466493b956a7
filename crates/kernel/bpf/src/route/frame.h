/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether a frame can be forwarded here, and where to: nothing of it is changed. */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "chain/place.h"
#include "route/address.h"
#include "route/nexthop_cache.h"
#include "route/partial_csum.h"

#define ROUTE_ICMPV6 58
/* Messages of ICMP about another packet: unreachable, quench, redirect, time, parameter. */
#define ROUTE_ICMP_ERRORS (1U << 3 | 1U << 4 | 1U << 5 | 1U << 11 | 1U << 12)

/* A header of 20 bytes whose ones' complement sum is not all ones is damaged. */
static __always_inline bool route_checksum_ok(const struct iphdr *ip)
{
	const __u32 *word = (const __u32 *)ip;

	return route_is_multiple((__u64)word[0] + word[1] + word[2] + word[3] + word[4]);
}

/* Whether a message of ICMP carries the packet that it is about, whose addresses decide where it goes. */
static __always_inline bool route_is_icmp_error(struct cursor *c, bool v6)
{
	__u8 *type = cursor_take(c, 1);

	if (!type)
		return true;
	if (v6)
		return *type < 128;
	return *type < 32 && ROUTE_ICMP_ERRORS >> *type & 1;
}

/* Reads the header of IPv4, which `c` is behind, into `d` and `k`. ROUTE_FORWARDED: nothing in it stands against the fast path. */
static __always_inline enum route_verdict route_parse_v4(struct xdp_md *ctx, const struct cursor *c, const struct iphdr *ip, struct route_decision *d,
						    struct route_key *k)
{
	if (!ip)
		return ROUTE_BAD_HEADER;
	if (*(__u8 *)ip != 0x45)
		return ip->version == 4 && ip->ihl > 5 ? ROUTE_OPTIONS : ROUTE_BAD_HEADER;
	d->ip_len = bpf_ntohs(ip->tot_len);
	if (d->ip_len < sizeof(*ip) || (d->ip_at + d->ip_len > d->frame_len && d->ip_at + d->ip_len > bpf_xdp_get_buff_len(ctx)))
		return ROUTE_BAD_HEADER;
	if (!route_checksum_ok(ip))
		return ROUTE_BAD_CHECKSUM;
	if (ip->ttl <= 1)
		return ROUTE_HOP_LIMIT;
	if (route_is_martian_v4(ip->saddr) || route_is_martian_v4(ip->daddr) || route_may_be_local(ip->saddr))
		return ROUTE_MARTIAN;
	d->hop_limit = ip->ttl;
	k->to[0] = ip->daddr;
	k->from[0] = ip->saddr;
	k->protocol = ip->protocol;
	k->tos = ip->tos;
	if (route_partial_csum)
		d->may_be_partial_csum = route_may_be_partial_csum(c, ip->protocol, d->ip_len - sizeof(*ip), (__u64)ip->saddr + ip->daddr);
	return ROUTE_FORWARDED;
}

/* The same of IPv6. */
static __always_inline enum route_verdict route_parse_v6(struct xdp_md *ctx, const struct cursor *c, const struct ipv6hdr *ip, struct route_decision *d,
						    struct route_key *k)
{
	if (!ip || ip->version != 6)
		return ROUTE_BAD_HEADER;
	/* Longer than the field can say, where it is 0 (BIG TCP), or nothing but a header. */
	if (!ip->payload_len)
		return ROUTE_BAD_HEADER;
	d->ip_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (d->ip_at + d->ip_len > d->frame_len && d->ip_at + d->ip_len > bpf_xdp_get_buff_len(ctx))
		return ROUTE_BAD_HEADER;
	if (ip->nexthdr == IPPROTO_HOPOPTS || ip->nexthdr == IPPROTO_ROUTING || ip->nexthdr == IPPROTO_NONE)
		return ROUTE_OPTIONS;
	if (ip->hop_limit <= 1)
		return ROUTE_HOP_LIMIT;
	if (route_is_martian_v6(&ip->saddr) || route_is_martian_v6(&ip->daddr))
		return ROUTE_MARTIAN;
	d->hop_limit = ip->hop_limit;
	__builtin_memcpy(k->to, &ip->daddr, sizeof(k->to));
	__builtin_memcpy(k->from, &ip->saddr, sizeof(k->from));
	k->label = *(__be32 *)ip & bpf_htonl(0x0fffffff);
	k->protocol = ip->nexthdr;
	k->tos = bpf_ntohl(k->label) >> 20;
	if (route_partial_csum)
		d->may_be_partial_csum = route_may_be_partial_csum(c, ip->nexthdr, d->ip_len - sizeof(*ip),
						 (__u64)k->to[0] + k->to[1] + k->to[2] + k->to[3] + k->from[0] + k->from[1] + k->from[2] + k->from[3]);
	return ROUTE_FORWARDED;
}

/* Reads the frame up to its IP header, which `c` is before then. False: it has none for this router. */
static __always_inline bool route_parse_frame(struct xdp_md *ctx, struct cursor *c, struct route_decision *d, struct route_key *k, __u16 *family)
{
	struct ethhdr *eth = cursor_take(c, sizeof(*eth));
	__u16 ethertype, *tag;
	__u32 in, *iif;

	d->verdict = ROUTE_NOT_IP;
	d->frame_len = ctx->data_end - ctx->data;
	d->ip_at = sizeof(*eth);
	d->in_tag = ROUTE_NO_TAG;
	if (!eth)
		return false;
	ethertype = eth->h_proto;
	if (!route_is_own_mac(eth)) {
		d->verdict = ROUTE_OTHER_MAC;
		return false;
	}
	if (ethertype == bpf_htons(ETH_P_8021Q)) {
		tag = cursor_take(c, ROUTE_TAG_BYTES);
		if (!tag)
			return false;
		d->in_tag = bpf_ntohs(tag[0]) & 0xfff;
		d->ip_at += ROUTE_TAG_BYTES;
		ethertype = tag[1];
		in = route_port << 12 | d->in_tag;
		iif = bpf_map_lookup_elem(&route_tags, &in);
		if (!iif) {
			d->verdict = ROUTE_UNKNOWN_VLAN;
			return false;
		}
		k->iif = *iif;
		k->tagged = true;
	}
	*family = ethertype;
	return true;
}

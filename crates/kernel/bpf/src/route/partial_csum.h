/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Packets whose checksum whoever made them has left to a device. The kernel knows so beside the frame, and finishes it where no device does;
 * a program at XDP does not, and sent on by it such a packet is damaged. */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "lib/verifier.h"
#include "route/address.h"

/* Such packets may come: of another network namespace or guest, and those that generic XDP gets, which may be merged ones too. */
const volatile bool route_partial_csum = false;

/* Bytes that are summed up at a time, and how often at the most: what is longer is merged. */
#define ROUTE_SUMMED 64
#define ROUTE_SUMS 64
#define ROUTE_FIRST_BUFFER 0x1fff

/* Whether it is a multiple of 65,535, as sums are whose parts cancel out: multiplied by the inverse of that number, multiples come first. */
static __always_inline bool route_is_multiple(__u64 sum)
{
	return sum * 0xfffefffefffeffffULL <= 0x0001000100010001ULL;
}

/* Whether what stands in the place of a packet's checksum is the sum of the pseudo header, or cannot be told here; `sum` is of the addresses, and
 * `l4` stands behind the IP header with `left` bytes of the packet. */
static __always_inline bool route_may_be_partial_csum(const struct cursor *l4, __u8 protocol, __u32 left, __u64 sum)
{
	__u32 at;

	if (protocol == IPPROTO_UDP)
		at = 6;
	else if (protocol == IPPROTO_TCP)
		at = 16;
	else
		return protocol == IPPROTO_SCTP;
	if (l4->pos + at + 2 > l4->end)
		return true;
	return route_is_multiple(sum + bpf_htonl(protocol) + bpf_htonl(left) + (__u16)~*(__u16 *)(l4->pos + at));
}

static __always_inline __u64 route_folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The next bytes at `at`; NULL where the frame's first buffer ends before. The verifier is to know no more of `at` than its bounds: so all ways
 * out of a loop are one to it. */
static __always_inline void *route_next(struct xdp_md *ctx, __u32 *at, __u32 bytes)
{
	void *next = (void *)(long)ctx->data + low_bits(*at, ROUTE_FIRST_BUFFER), *end = (void *)(long)ctx->data_end;

	if (next + bytes > end)
		return 0;
	*at += bytes;
	return next;
}

/* Whether the `left` bytes at `at`, with `sum` of the pseudo header, sum up to what a finished packet does. False also where not all are here. */
static __always_inline bool route_is_whole(struct xdp_md *ctx, __u32 at, __u32 left, __u64 sum)
{
	__u32 *some;
	__u16 *two;
	__u8 *byte;
	int i;

	sum = route_folded(sum);
	for (i = 0; i < ROUTE_SUMS && left >= ROUTE_SUMMED; i++) {
		some = route_next(ctx, &at, ROUTE_SUMMED);
		if (!some)
			return false;
		sum = route_folded((__u32)bpf_csum_diff(0, 0, some, ROUTE_SUMMED, sum));
		left -= ROUTE_SUMMED;
	}
	for (i = 0; i < ROUTE_SUMMED / 4 && left >= 4; i++) {
		some = route_next(ctx, &at, 4);
		if (!some)
			return false;
		sum += *some;
		left -= 4;
	}
	if (left >= 2) {
		two = route_next(ctx, &at, 2);
		if (!two)
			return false;
		sum += *two;
		left -= 2;
	}
	if (left) {
		byte = route_next(ctx, &at, 1);
		if (!byte)
			return false;
		/* The first one of a word on the wire. */
		sum += bpf_htons((__u16)*byte << 8);
		left--;
	}
	return !left && route_folded(sum) == 0xffff;
}

/* What stands in the place of the checksum then is the sum of the pseudo header, as in one finished packet of 65,536: that one is summed up.
 * SCTP has zero. */
static __always_inline bool route_is_partial_csum(struct xdp_md *ctx)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct ethhdr *eth = cursor_take(&c, sizeof(*eth));
	__u16 ethertype, *tag;
	struct ipv6hdr *ip6;
	__u8 protocol, *l4;
	struct iphdr *ip;
	__u32 left, need;
	__u64 sum = 0;
	int i;

	if (!eth)
		return false;
	ethertype = eth->h_proto;
	if (ethertype == bpf_htons(ETH_P_8021Q)) {
		tag = cursor_take(&c, ROUTE_TAG_BYTES);
		if (!tag)
			return false;
		ethertype = tag[1];
	}
	if (ethertype == bpf_htons(ETH_P_IP)) {
		ip = cursor_take(&c, sizeof(*ip));
		/* They are cut only when they are finished. */
		if (!ip || ip->frag_off & bpf_htons(ROUTE_MORE_FRAGMENTS | ROUTE_FRAGMENT_OFFSET))
			return false;
		protocol = ip->protocol;
		sum = (__u64)ip->saddr + ip->daddr;
		left = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	} else {
		ip6 = cursor_take(&c, sizeof(*ip6));
		if (!ip6 || ethertype != bpf_htons(ETH_P_IPV6))
			return false;
		protocol = ip6->nexthdr;
		for (i = 0; i < 4; i++)
			sum += (__u64)ip6->saddr.in6_u.u6_addr32[i] + ip6->daddr.in6_u.u6_addr32[i];
		left = bpf_ntohs(ip6->payload_len);
	}
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP && protocol != IPPROTO_SCTP)
		return false;
	need = protocol == IPPROTO_TCP ? 20 : protocol == IPPROTO_SCTP ? 12 : 8;
	if (left < need)
		return false;
	/* What lies beyond the frame's first buffer the kernel looks at. */
	if (protocol == IPPROTO_SCTP) {
		l4 = cursor_take(&c, 12);
		return !l4 || !*(__u32 *)(l4 + 8);
	}
	l4 = protocol == IPPROTO_TCP ? cursor_take(&c, 18) : cursor_take(&c, 8);
	if (!l4)
		return true;
	sum += bpf_htonl(protocol) + (__u64)bpf_htonl(left);
	if ((protocol == IPPROTO_TCP ? *(__u16 *)(l4 + 16) : *(__u16 *)(l4 + 6)) != route_folded(sum))
		return false;
	return !route_is_whole(ctx, (void *)l4 - (void *)(long)ctx->data, left, sum);
}

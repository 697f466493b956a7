/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writes other addresses and ports into a packet, as the kernel's NAT does. */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "lib/common.h"

/* The translation of a frame. */
struct route_nat {
	__u32 from[4];
	__u32 to[4];
	__be32 ports;
	/* What the checksums change by: that of IPv4, and that of TCP or UDP. */
	__u64 addresses;
	__u64 all;
	bool tcp;
};

/* RFC 1624, equation 3: `sum` is of the complements of what was there and of what is there now. */
static __always_inline __u16 route_check(__u16 check, __u64 sum)
{
	sum += (__u16)~check;
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void route_translate_addresses(void *header, bool v4, const struct route_nat *nat)
{
	if (v4) {
		struct iphdr *ip = header;

		ip->saddr = nat->from[0];
		ip->daddr = nat->to[0];
		ip->check = route_check(ip->check, nat->addresses);
	} else {
		struct ipv6hdr *ip6 = header;

		__builtin_memcpy(&ip6->saddr, nat->from, sizeof(nat->from));
		__builtin_memcpy(&ip6->daddr, nat->to, sizeof(nat->to));
	}
}

static __always_inline void route_translate_udp(struct udphdr *udp, const struct route_nat *nat)
{
	/* None is none. */
	if (!udp->check)
		return;
	udp->check = route_check(udp->check, nat->all);
	if (!udp->check)
		udp->check = 0xffff;
}

/* False: the packet ends before; nothing of it is changed. */
static __always_inline bool route_translate(void *header, void *end, bool v4, const struct route_nat *nat)
{
	void *at = header + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	struct tcphdr *tcp = at;
	struct udphdr *udp = at;

	if ((void *)(udp + 1) > end || (nat->tcp && (void *)(tcp + 1) > end))
		return false;
	route_translate_addresses(header, v4, nat);
	*(__be32 *)at = nat->ports;
	if (!nat->tcp)
		route_translate_udp(udp, nat);
	else if ((void *)(tcp + 1) <= end)
		tcp->check = route_check(tcp->check, nat->all);
	return true;
}

/* The same of an IP header and 8 bytes behind it. */
static __always_inline void route_translate_head(void *header, bool v4, const struct route_nat *nat)
{
	void *at = header + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));

	route_translate_addresses(header, v4, nat);
	*(__be32 *)at = nat->ports;
	if (!nat->tcp)
		route_translate_udp(at, nat);
}

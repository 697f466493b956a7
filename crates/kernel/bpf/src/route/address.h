/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What every program of a port knows: its settings and counters, and which addresses are the kernel's business. */
#pragma once

#include <linux/ipv6.h>
#include <stdbool.h>

#include "lib/cursor.h"
#include "route/route.h"

#define ROUTE_TAG_BYTES 4
#define ROUTE_MORE_FRAGMENTS 0x2000
#define ROUTE_FRAGMENT_OFFSET 0x1fff

/* The port that this program runs on: its number, and its interface's. */
const volatile __u32 route_port = 0;
const volatile __u32 route_ifindex = 0;

struct route_config route_config SEC(".data.route") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_count);
} route_counts SEC(".maps");

static __always_inline bool route_is_own_mac(const struct ethhdr *eth)
{
	const struct route_port *port = &route_config.ports[route_port & (ROUTE_PORTS - 1)];
	const __u16 *to = (const __u16 *)eth, *own = (const __u16 *)port->mac;

	return to[0] == own[0] && to[1] == own[1] && to[2] == own[2];
}

/* Sources and destinations that the kernel drops, keeps, or answers. */
static __always_inline bool route_is_martian_v4(__u32 address)
{
	__u32 a = bpf_ntohl(address);

	/* 0.0.0.0/8, 127.0.0.0/8; 224.0.0.0/4 and 255.255.255.255. */
	return a >> 24 == 0 || a >> 24 == 127 || a >> 28 == 14 || a == 0xffffffff;
}

/* Unspecified, loopback, IPv4 in IPv6; link-local and site-local; groups. */
static __always_inline bool route_is_martian_v6(const struct in6_addr *address)
{
	__u32 first = address->in6_u.u6_addr32[0];

	return !first || (first & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000) || (first & bpf_htonl(0xff800000)) == bpf_htonl(0xfe800000);
}

/* An address that is this machine's own sets its bit; one in some thousands of others has the same. */
static __always_inline bool route_may_be_local(__u32 address)
{
	__u32 bit = (address * 0x9e3779b1U) >> 20;

	return route_config.local[bit / 64] >> (bit & 63) & 1;
}

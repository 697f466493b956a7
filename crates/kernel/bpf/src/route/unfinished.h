/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames whose checksum the sender's card was to finish. Between a veth's ends, and from a tun device, they come as they were left: only the
 * kernel knows that of them, and finishes them where it sends them out.
 */
#pragma once

#include <linux/tcp.h>
#include <linux/udp.h>

#include "route/address.h"

#define ROUTE_SCTP_CHECK 8

static __always_inline __u16 route_fold_sum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * Whether the checksum's place holds what the kernel leaves there for a card: the sum of the pseudo header, or nothing for SCTP. `addresses` is
 * the sum of the addresses, and `c` is behind the IP header. One finished checksum of 65,536 looks alike: its packet goes up too.
 */
static __always_inline bool route_is_unfinished(struct cursor c, __u8 protocol, __u32 len, __u64 addresses)
{
	__u16 left;

	if (!(route_config.ports[route_port & (ROUTE_PORTS - 1)].flags & ROUTE_PORT_UNFINISHED))
		return false;
	if (protocol == IPPROTO_UDP) {
		struct udphdr *udp = cursor_take(&c, sizeof(*udp));

		if (!udp)
			return false;
		left = udp->check;
	} else if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = cursor_take(&c, sizeof(*tcp));

		if (!tcp)
			return false;
		left = tcp->check;
	} else if (protocol == IPPROTO_SCTP) {
		__u32 *check = cursor_take(&c, ROUTE_SCTP_CHECK + sizeof(*check));

		return check && !check[ROUTE_SCTP_CHECK / 4];
	} else {
		return false;
	}
	return left == route_fold_sum(addresses + bpf_htons(protocol) + bpf_htons(len & 0xffff) + (len >> 16));
}

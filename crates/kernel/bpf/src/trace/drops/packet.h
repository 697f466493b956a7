/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a dropped packet was: its addresses and ports, and of TCP whether it carried data. Read from where the kernel's headers of the
 * socket buffer point to; what is not there, or was never set, stays zero. All reads are fault-proof and of a fixed length.
 */
#pragma once

#include "lib/common.h"
#include "lib/sk_buff.h"
#include <bpf/bpf_core_read.h>

/* What kind of packet it was, as far as the ledger must know it. */
#define DROP_OTHER 0
/* TCP with payload. */
#define DROP_TCP_DATA 1
/* TCP without payload: the first flag that it has of these, in this order. */
#define DROP_TCP_RST 2
#define DROP_TCP_SYN 3
#define DROP_TCP_FIN 4
#define DROP_TCP_BARE 5
/* A copy for a packet tap. */
#define DROP_COPY 6
/* Taken for another host's though it has our MAC: the kernel does so with a VLAN tag that no device has. */
#define DROP_FOREIGN_VLAN 7
/* No IP, to a group that switches talk to each other in (is_link_local). */
#define DROP_LINK_LOCAL 8

#define AF_PACKET 17
#define NO_HEADER 0xffff
#define LEAST_MAC_HEADER 14
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define IP_OFFSET_MASK 0x1fff

/* Who sent it to whom. */
struct drop_flow {
	/* In network order; IPv4 in the first four bytes. */
	__u8 source[16];
	__u8 destination[16];
	/* In host order; 0: none. */
	__u16 source_port;
	__u16 destination_port;
	/* The protocol in IP. */
	__u8 protocol;
	/* 4 or 6; 0: no IP, and nothing above is set. */
	__u8 version;
	__u16 pad;
};

struct ip4_start {
	__u8 version_length;
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__u8 source[4];
	__u8 destination[4];
};

struct ip6_start {
	__be32 first;
	__be16 payload;
	__u8 next;
	__u8 hop_limit;
	__u8 source[16];
	__u8 destination[16];
};

/* Ports, and of TCP the length of the header and the flags. */
struct l4_start {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledgement;
	__u8 offset;
	__u8 flags;
};

static __always_inline __u8 kind_of_tcp(const struct l4_start *tcp, __s32 length)
{
	/* No length: larger than it can say, so that there are data. */
	if (length <= 0 || length > (tcp->offset >> 4) * 4)
		return DROP_TCP_DATA;
	if (tcp->flags & TCP_RST)
		return DROP_TCP_RST;
	if (tcp->flags & TCP_SYN)
		return DROP_TCP_SYN;
	return tcp->flags & TCP_FIN ? DROP_TCP_FIN : DROP_TCP_BARE;
}

/* Fills in `flow`, which is zero; tells the kind. */
static __always_inline __u8 look_into(struct drop_flow *flow, struct sk_buff *skb)
{
	__u32 at = skb->network_header, tail = skb->tail;
	unsigned char *head = skb->head;
	struct l4_start l4 = {};
	__s32 length;

	if (!at || at == NO_HEADER)
		return DROP_OTHER;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct ip4_start ip;

		if (at + sizeof(ip) > tail || bpf_probe_read_kernel(&ip, sizeof(ip), head + at) || ip.version_length >> 4 != 4)
			return DROP_OTHER;
		flow->version = 4;
		flow->protocol = ip.protocol;
		__builtin_memcpy(flow->source, ip.source, 4);
		__builtin_memcpy(flow->destination, ip.destination, 4);
		if (ip.fragment & bpf_htons(IP_OFFSET_MASK))
			return DROP_OTHER;
		at += (ip.version_length & 15) * 4;
		length = bpf_ntohs(ip.length) - (ip.version_length & 15) * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ip6_start ip;

		if (at + sizeof(ip) > tail || bpf_probe_read_kernel(&ip, sizeof(ip), head + at))
			return DROP_OTHER;
		flow->version = 6;
		flow->protocol = ip.next;
		__builtin_memcpy(flow->source, ip.source, 16);
		__builtin_memcpy(flow->destination, ip.destination, 16);
		at += sizeof(ip);
		length = bpf_ntohs(ip.payload);
	} else {
		return DROP_OTHER;
	}
	if (flow->protocol == IPPROTO_TCP) {
		if (at + 20 > tail || bpf_probe_read_kernel(&l4, 14, head + at))
			return DROP_OTHER;
	} else if (flow->protocol == IPPROTO_UDP) {
		if (at + 8 > tail || bpf_probe_read_kernel(&l4, 4, head + at))
			return DROP_OTHER;
	} else {
		return DROP_OTHER;
	}
	flow->source_port = bpf_ntohs(l4.source);
	flow->destination_port = bpf_ntohs(l4.destination);
	return flow->protocol == IPPROTO_TCP ? kind_of_tcp(&l4, length) : DROP_OTHER;
}

/* Whether its destination is the device's own MAC. */
static __always_inline int is_for_device(struct sk_buff *skb)
{
	const struct net_device *dev = skb->dev;
	__u32 at = skb->mac_header;
	__u16 own[3] = {}, wanted[3] = {};

	if (!dev || at == NO_HEADER || at + LEAST_MAC_HEADER > skb->tail)
		return 0;
	if (bpf_probe_read_kernel(own, 6, dev->dev_addr) || bpf_probe_read_kernel(wanted, 6, skb->head + at))
		return 0;
	return own[0] == wanted[0] && own[1] == wanted[1] && own[2] == wanted[2];
}

/* Whether its destination is a group address of the next device alone, or of switches: 01:80:c2:00:00:00 to 2f (IEEE 802.1Q tables 8-1 and 10-1:
 * spanning tree, pause, LACP, LLDP, 802.1X, MVRP) and Cisco's 01:00:0c:cc:cc:xx (CDP, VTP, PVST+). */
static __always_inline int is_link_local(struct sk_buff *skb)
{
	__u32 at = skb->mac_header;
	__u8 to[6] = {};

	if (at == NO_HEADER || at + LEAST_MAC_HEADER > skb->tail || bpf_probe_read_kernel(to, 6, skb->head + at) || to[0] != 1)
		return 0;
	if (to[1] == 0x80)
		return to[2] == 0xc2 && !to[3] && !to[4] && to[5] < 0x30;
	return !to[1] && to[2] == 0x0c && to[3] == 0xcc && to[4] == 0xcc;
}

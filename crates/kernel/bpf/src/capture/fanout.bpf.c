/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Chooses the member of a packet fanout group (PACKET_FANOUT_EBPF): the group takes the result modulo its members. */
#include "lib/common.h"

/* Where the last four bytes of the source address are, from the network header on. */
#define IPV4_SOURCE 12
#define IPV6_SOURCE_END 20

/* All packets of one source address meet one member; what is neither IPv4 nor IPv6 meets the first. */
SEC("socket")
int fanout(struct __sk_buff *skb)
{
	__u32 source = 0;
	__u32 offset;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		offset = IPV4_SOURCE;
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		offset = IPV6_SOURCE_END;
	else
		return 0;
	if (bpf_skb_load_bytes_relative(skb, offset, &source, sizeof(source), BPF_HDR_START_NET))
		return 0;
	return bpf_ntohl(source);
}

char _license[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which of the packet sockets of a node gets a frame of messages between nodes (docs/protocol/link.md): the owner of the port it is for. */
#include "messages/owners.h"

#include <linux/if_packet.h>

/* Where the port of the receiving application is, behind an Ethernet header. */
#define TO_PORT (14 + 6)

/* Whose socket this is. */
const volatile __u32 owner = 0;

SEC("socket")
int port_owner(struct __sk_buff *skb)
{
	__u16 port = 0;
	__u32 key;
	__u32 *found;

	/* Whoever has the socket may bind it to all that comes or leaves: that is not for it. */
	if (skb->protocol != bpf_htons(LINK_ETHERTYPE) || skb->pkt_type == PACKET_OUTGOING || skb->pkt_type == PACKET_OTHERHOST)
		return 0;
	/* A frame too short for a port is for who counts such. */
	if (bpf_skb_load_bytes(skb, TO_PORT, &port, sizeof(port)))
		return owner ? 0 : skb->len;
	key = bpf_ntohs(port);
	found = bpf_map_lookup_elem(&port_owners, &key);
	return found && *found == owner ? (int)skb->len : 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

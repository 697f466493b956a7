/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which of the UDP sockets of a node gets a datagram of messages between nodes (docs/protocol/link.md): that of the owner of the port it is for. */
#include "messages/owners.h"

/* Where the port of the receiving application is, behind a UDP header. */
#define TO_PORT (8 + 6)
/* Owners that a node may have: blocks of ports, and the broker. */
#define OWNERS 1024

/* By owner: its socket. */
struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, __u64);
} owner_sockets SEC(".maps");

SEC("sk_reuseport")
int port_reuse(struct sk_reuseport_md *md)
{
	__u16 port = 0;
	__u32 key, owner = 0;
	__u32 *found;

	/* A frame too short for a port is for who counts such. */
	if (!bpf_skb_load_bytes(md, TO_PORT, &port, sizeof(port))) {
		key = bpf_ntohs(port);
		found = bpf_map_lookup_elem(&port_owners, &key);
		if (found)
			owner = *found;
	}
	/* What is for a program that is gone is the business of nobody else. */
	return bpf_sk_select_reuseport(md, &owner_sockets, &owner, 0) ? SK_DROP : SK_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

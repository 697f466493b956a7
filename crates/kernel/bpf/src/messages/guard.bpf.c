/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Stands between packet sockets that are not trusted and the interface that carries messages (docs/protocol/link.md).
 *
 * Those sockets live in a network namespace whose one interface is an end of a veth pair. What they send comes out of the other end, where
 * link_guard_out lets pass to the wire what its sender may send: the veth pair has no way round it, PACKET_QDISC_BYPASS neither. What comes for
 * them is sent in by link_guard_in. */
#include "messages/header.h"
#include "messages/owners.h"

#include <stdbool.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

/* An Ethernet header and that of a message. */
#define HEADERS_BYTES (ETH_HLEN + sizeof(struct link_header))
/* Halves of a word behind the start: the EtherType, and the ports. */
#define ETHERTYPE_AT 6
#define FROM_PORT_AT 9
#define TO_PORT_AT 10
/* An owner whose sockets are those guarded. */
#define GUARDED (1U << 31)

/* By the kernel's cookie of a socket: its owner. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
} guarded_sockets SEC(".maps");

/* The interface that carries messages, and the end of the pair that is beside it. */
const volatile __u32 wire = 0;
const volatile __u32 door = 0;
/* The wire's address: its halves in the order of memory. */
const volatile __u16 address[3] = {};

/* Frames that were not let out. */
PER_CPU(__u64, guard_refused);

/* What speaks for a connection of its own port: nothing that nodes say of themselves, and no other version but its one notice. */
static __always_inline bool is_of_program(const struct link_header *h)
{
	__u8 kind = h->version_kind & 15;

	if (h->version_kind >> 4 != LINK_VERSION)
		return h->version_kind == LINK_RESET;
	if (kind >= LINK_HELLO)
		return false;
	return h->connection || kind == LINK_OPEN || kind == LINK_RESET;
}

static __always_inline bool may_send(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	__u16 *half;
	__u32 *sender, *owner;
	__u32 port;

	/* Segments that are made later would not be looked at. Sums are made before: the pair has no offload for them. */
	if (skb->vlan_present || skb->gso_size || skb->len < HEADERS_BYTES)
		return false;
	/* The bytes of a transmit ring are the sender's, which may change them afterwards: those that are looked at become the kernel's. */
	if (bpf_skb_pull_data(skb, HEADERS_BYTES))
		return false;
	half = (void *)(long)skb->data;
	if ((void *)half + HEADERS_BYTES > (void *)(long)skb->data_end)
		return false;
	if (half[ETHERTYPE_AT] != bpf_htons(LINK_ETHERTYPE))
		return false;
	if (half[3] != address[0] || half[4] != address[1] || half[5] != address[2])
		return false;
	if (!is_of_program((void *)half + ETH_HLEN))
		return false;
	port = bpf_ntohs(half[FROM_PORT_AT]);
	sender = bpf_map_lookup_elem(&guarded_sockets, &cookie);
	owner = bpf_map_lookup_elem(&port_owners, &port);
	return sender && owner && *sender == *owner;
}

SEC("tc")
int link_guard_out(struct __sk_buff *skb)
{
	__u32 zero = 0;
	__u64 *refused;

	if (may_send(skb))
		return bpf_redirect(wire, 0);
	refused = bpf_map_lookup_elem(&guard_refused, &zero);
	if (refused)
		++*refused;
	return TC_ACT_SHOT;
}

SEC("tc")
int link_guard_in(struct __sk_buff *skb)
{
	__u16 port = 0;
	__u32 key;
	__u32 *owner;

	if (skb->protocol != bpf_htons(LINK_ETHERTYPE) || skb->vlan_present)
		return TC_ACT_UNSPEC;
	if (skb->pkt_type != PACKET_HOST && skb->pkt_type != PACKET_BROADCAST && skb->pkt_type != PACKET_MULTICAST)
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(skb, TO_PORT_AT * 2, &port, sizeof(port)))
		return TC_ACT_UNSPEC;
	key = bpf_ntohs(port);
	owner = bpf_map_lookup_elem(&port_owners, &key);
	return owner && (*owner & GUARDED) ? (int)bpf_redirect_peer(door, 0) : TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";

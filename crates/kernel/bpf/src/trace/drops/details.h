/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whose packets were dropped: drops by addresses and destination port, each with the first bytes of one packet and the kernel's way to
 * the drop. Only when asked for; only of drops that are looked at, so that it is within their budget (trace/drops/gate.h). All memory is there
 * from the start; when there are more flows than room, those that were not seen for longest make room.
 */
#pragma once

#include "trace/drops/packet.h"

#define DETAIL_BYTES 128
#define DETAIL_FRAMES 24

struct detail_key {
	__u64 location;
	__u32 netns;
	__u32 ifindex;
	__u32 reason;
	__u16 protocol;
	__u8 kind;
	__u8 pad;
	/* Without the source port. */
	struct drop_flow flow;
};

struct detail_value {
	/* Scaled by the sampling. */
	__u64 packets;
	/* The kernel's way to the drop, innermost first; 0 behind its end. */
	__u64 stack[DETAIL_FRAMES];
	/* Bytes on the wire, as far as known, and those of them that are in `bytes`. */
	__u32 length;
	__u16 captured;
	/* Bytes of the link's header before the network's; 0: it was not made yet. */
	__u16 link_header;
	__u8 bytes[DETAIL_BYTES];
};

/* Other than 0: keep details. */
const volatile __u32 drop_details = 0;

/* The size is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct detail_key);
	__type(value, struct detail_value);
} details SEC(".maps");

PER_CPU(struct detail_value, detail_room);

static __always_inline void copy_packet(struct detail_value *value, struct sk_buff *skb)
{
	__u32 tail = skb->tail, network = skb->network_header, mac = skb->mac_header, at;
	__u32 data = skb->data - skb->head;
	/* 64 bits wide, so that the verifier sees the bound in the register that is handed over. */
	__u64 length;

	value->link_header = 0;
	value->captured = 0;
	at = !network || network == NO_HEADER || network > tail ? data : network;
	if (mac != NO_HEADER && mac < at && at - mac >= LEAST_MAC_HEADER && at - mac <= LEAST_MAC_HEADER + 8) {
		value->link_header = at - mac;
		at = mac;
	}
	length = tail > at ? tail - at : 0;
	value->length = skb->len + data > at ? skb->len + data - at : length;
	if (length > DETAIL_BYTES)
		length = DETAIL_BYTES;
	asm volatile("" : "+r"(length));
	if (length > DETAIL_BYTES)
		return;
	if (bpf_probe_read_kernel(value->bytes, length, skb->head + at))
		length = 0;
	value->captured = length;
}

static __always_inline void keep_details(void *ctx, const struct detail_key *key, struct sk_buff *skb, __u64 weight)
{
	struct detail_value *value = bpf_map_lookup_elem(&details, key);
	__u32 zero = 0;
	long bytes;

	if (value) {
		__sync_fetch_and_add(&value->packets, weight);
		return;
	}
	value = bpf_map_lookup_elem(&detail_room, &zero);
	if (!value)
		return;
	value->packets = weight;
	bytes = bpf_get_stack(ctx, value->stack, sizeof(value->stack), 0);
	if (bytes < 0)
		bytes = 0;
	/* Behind the end is what an earlier packet left. */
	for (int i = 0; i < DETAIL_FRAMES; i++)
		if (i * (long)sizeof(__u64) >= bytes)
			value->stack[i] = 0;
	copy_packet(value, skb);
	bpf_map_update_elem(&details, key, value, BPF_NOEXIST);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The far end of a flood of spoofed packets: what goes back to sources that do not exist ends here, counted by kind, before it costs
 * a socket buffer's way through a stack; what is for the clients, and what is not IPv4, passes. */
#include <linux/ip.h>
#include <linux/tcp.h>

#include "lib/cursor.h"

/* The clients' prefix, in network order. */
const volatile __u32 flood_network = 0;
const volatile __u32 flood_mask = 0;

/* Counts of one CPU. */
struct flood_end_count {
	/* For the clients, or not IPv4. */
	__u64 passed;
	/* To others: SYN-ACKs, resets, and the rest. */
	__u64 syn_acks;
	__u64 resets;
	__u64 others;
};

PER_CPU(struct flood_end_count, flood_counts);

SEC("xdp")
int flood_end(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct flood_end_count *count;
	struct ethhdr *eth;
	struct tcphdr *tcp = 0;
	struct iphdr *ip;
	__u32 zero = 0;

	count = bpf_map_lookup_elem(&flood_counts, &zero);
	if (!count)
		return XDP_ABORTED;
	eth = cursor_take(&c, sizeof(*eth));
	if (!eth || eth->h_proto != bpf_htons(ETH_P_IP))
		goto pass;
	ip = cursor_take(&c, sizeof(*ip));
	if (!ip || (ip->daddr & flood_mask) == flood_network)
		goto pass;
	/* Nobody sends options to a source that does not exist. */
	if (ip->ihl == 5 && ip->protocol == IPPROTO_TCP)
		tcp = cursor_take(&c, sizeof(*tcp));
	if (tcp && tcp->syn && tcp->ack)
		count->syn_acks++;
	else if (tcp && tcp->rst)
		count->resets++;
	else
		count->others++;
	return XDP_DROP;
pass:
	count->passed++;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

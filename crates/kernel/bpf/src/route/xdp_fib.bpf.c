/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Forwards by the kernel's routing table and neighbours, before a socket buffer is made. What it cannot forward goes to the
 * stack, which answers, forwards or drops it by its own rules; each such packet is counted by its reason. */
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "lib/cursor.h"

#define FIB_AF_INET 2
#define FIB_AF_INET6 10

/* What became of the frames that one CPU has seen. */
struct fib_count {
	/* Handed to another interface; what that one refuses is in its own counters. */
	__u64 forwarded;
	/* To the stack: neither IPv4 nor IPv6, too short, IPv4 with options, or for more than one host (ARP, multicast). */
	__u64 not_ip;
	/* To the stack: the last hop that the packet may make, which is answered by ICMP. */
	__u64 expired;
	/* To the stack: no route, a local address, a refusing route, forwarding is off. */
	__u64 no_route;
	/* To the stack: the neighbour's MAC address is not known. */
	__u64 no_neighbour;
	/* To the stack: larger than the way out takes. */
	__u64 too_big;
	/* To the stack: out of an interface that is not one of ours, or of the one that it came from. */
	__u64 elsewhere;
};

PER_CPU(struct fib_count, fib_counts);

/* The interfaces that frames may leave by, under their own index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u32);
} fib_ports SEC(".maps");

/* One hop less: the checksum of the header changes by the same 0x0100, in network order (RFC 1624). */
static __always_inline void one_hop_less(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = (__u16)(sum + (sum >= 0xffff));
	ip->ttl--;
}

SEC("xdp")
int xdp_fib(struct xdp_md *ctx)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct bpf_fib_lookup fib = {};
	struct fib_count *count;
	struct ipv6hdr *ip6 = 0;
	struct iphdr *ip = 0;
	struct ethhdr *eth;
	__u32 zero = 0;
	__u32 out;
	long found;

	count = bpf_map_lookup_elem(&fib_counts, &zero);
	if (!count)
		return XDP_ABORTED;
	eth = cursor_take(&c, sizeof(*eth));
	/* The lowest bit of the first byte: a group of hosts. */
	if (!eth || (eth->h_dest[0] & 1))
		goto not_ip;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		ip = cursor_take(&c, sizeof(*ip));
		if (!ip || ip->version != 4 || ip->ihl != 5)
			goto not_ip;
		if (ip->ttl <= 1)
			goto expired;
		fib.family = FIB_AF_INET;
		fib.tos = ip->tos;
		fib.l4_protocol = ip->protocol;
		fib.tot_len = bpf_ntohs(ip->tot_len);
		fib.ipv4_src = ip->saddr;
		fib.ipv4_dst = ip->daddr;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		ip6 = cursor_take(&c, sizeof(*ip6));
		if (!ip6 || ip6->version != 6)
			goto not_ip;
		if (ip6->hop_limit <= 1)
			goto expired;
		fib.family = FIB_AF_INET6;
		fib.flowinfo = *(__be32 *)ip6 & bpf_htonl(0x0fffffff);
		fib.l4_protocol = ip6->nexthdr;
		fib.tot_len = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
		__builtin_memcpy(fib.ipv6_src, &ip6->saddr, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &ip6->daddr, sizeof(fib.ipv6_dst));
	} else {
		goto not_ip;
	}
	fib.ifindex = ctx->ingress_ifindex;
	found = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH) {
		count->no_neighbour++;
		return XDP_PASS;
	}
	if (found == BPF_FIB_LKUP_RET_FRAG_NEEDED) {
		count->too_big++;
		return XDP_PASS;
	}
	if (found != BPF_FIB_LKUP_RET_SUCCESS) {
		count->no_route++;
		return XDP_PASS;
	}
	out = fib.ifindex;
	if (out == ctx->ingress_ifindex || !bpf_map_lookup_elem(&fib_ports, &out)) {
		count->elsewhere++;
		return XDP_PASS;
	}
	if (ip)
		one_hop_less(ip);
	else if (ip6)
		ip6->hop_limit--;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	count->forwarded++;
	return bpf_redirect_map(&fib_ports, out, 0);

not_ip:
	count->not_ip++;
	return XDP_PASS;
expired:
	count->expired++;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the kernel sends out of a router's port while the shadow compares: at tc egress. */
#include "lib/common.h"

#include <linux/pkt_cls.h>

#include "route/digest.h"

/* TCX_NEXT of include/uapi/linux/bpf.h (6.6): on to the next program; of an older tc filter: as TC_ACT_UNSPEC. */
#define ROUTE_NEXT (-1)

/* The port's interface. */
const volatile __u32 route_out_ifindex = 0;

SEC("tc")
int ek_route_out(struct __sk_buff *skb)
{
	struct route_sample *sample;
	__u32 head[ROUTE_DIGEST_V6 / 4];
	__u16 ethertype, tag = ROUTE_NO_TAG;
	__u32 at = sizeof(struct ethhdr);
	__u8 hop_limit, macs[12];
	__be16 words[2];
	__u64 digest;

	if (bpf_skb_load_bytes(skb, 0, macs, sizeof(macs)) || bpf_skb_load_bytes(skb, 12, &ethertype, sizeof(ethertype)))
		return ROUTE_NEXT;
	if (skb->vlan_present)
		tag = skb->vlan_tci & 0xfff;
	if (ethertype == bpf_htons(ETH_P_8021Q)) {
		if (bpf_skb_load_bytes(skb, at, words, sizeof(words)))
			return ROUTE_NEXT;
		tag = bpf_ntohs(words[0]) & 0xfff;
		ethertype = words[1];
		at += 4;
	}
	if (ethertype == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, at, head, ROUTE_DIGEST_V4))
			return ROUTE_NEXT;
		digest = route_digest_v4(head);
		hop_limit = ((__u8 *)head)[8];
	} else if (ethertype == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, at, head, ROUTE_DIGEST_V6))
			return ROUTE_NEXT;
		digest = route_digest_v6(head);
		hop_limit = ((__u8 *)head)[7];
	} else {
		return ROUTE_NEXT;
	}
	sample = bpf_map_lookup_elem(&route_samples, &digest);
	if (!sample)
		return ROUTE_NEXT;
	sample->kernel.ifindex = route_out_ifindex;
	sample->kernel.tag = tag;
	sample->kernel.hop_limit = hop_limit;
	__builtin_memcpy(sample->kernel.macs, macs, sizeof(macs));
	__sync_fetch_and_add(&sample->sent, 1);
	return ROUTE_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";

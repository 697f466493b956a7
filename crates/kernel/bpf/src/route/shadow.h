/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The shadow: what would have become of a frame is written down, and the frame goes up. */
#pragma once

#include "route/digest.h"
#include "route/nexthop_cache.h"
#include "route/nat.h"

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_sample);
} route_scratch SEC(".maps");

/* `nat`, unless it is 0, is the frame's translation. Needs a function with a stack of its own around it. */
static __always_inline int route_sample_of(struct xdp_md *ctx, struct route_count *count, const struct route_decision *d, const struct route_nat *nat)
{
	struct route_sample *sample;
	__u32 zero = 0, len;
	__u64 digest;

	sample = bpf_map_lookup_elem(&route_scratch, &zero);
	if (!sample)
		return 0;
	/* Frames too short to be told apart are not compared. */
	if (d->family == bpf_htons(ETH_P_IP)) {
		if (bpf_xdp_load_bytes(ctx, d->ip_at, sample->head, ROUTE_DIGEST_V4))
			return 0;
		/* As it is to leave: so addresses and ports are compared too. */
		if (nat)
			route_translate_head((void *)sample->head, true, nat);
		digest = route_digest_v4((__u32 *)sample->head);
	} else {
		if (bpf_xdp_load_bytes(ctx, d->ip_at, sample->head, ROUTE_DIGEST_V6))
			return 0;
		if (nat)
			route_translate_head((void *)sample->head, false, nat);
		digest = route_digest_v6((__u32 *)sample->head);
	}
	len = d->frame_len;
	sample->len = len;
	if (len > ROUTE_HEAD)
		len = ROUTE_HEAD;
	len = ((len - 1) & 127) + 1;
	if (len > ROUTE_HEAD || bpf_xdp_load_bytes(ctx, 0, sample->head, len))
		return 0;
	sample->kept = len;
	sample->sent = 0;
	sample->in_ifindex = route_ifindex;
	sample->ingress_ns = bpf_ktime_get_ns();
	sample->own.ifindex = route_config.ports[d->port & (ROUTE_PORTS - 1)].ifindex;
	sample->own.tag = d->out_tag;
	sample->own.hop_limit = d->hop_limit - 1;
	__builtin_memcpy(sample->own.macs, d->macs, sizeof(d->macs));
	bpf_map_update_elem(&route_samples, &digest, sample, BPF_ANY);
	count->sampled++;
	return 0;
}

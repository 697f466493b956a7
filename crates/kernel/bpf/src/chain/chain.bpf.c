/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The chain: one resident program on an interface, from which each feature's program is called in its place.
 *
 * A place is a program array of its own. Calls by a constant index are jumps that the kernel writes into the code when a place is filled
 * and takes out when it is emptied: an empty place costs next to nothing. A program that lets a frame pass calls the ek_rest_* here for the
 * places behind its own, unless all of them are empty. The kernel empties an array with its last user: so a place whose owner was killed is empty, and the others go on.
 */
#include "lib/common.h"

#include "chain/chain.h"

CHAIN_ARRAY(ek_before, 1);
CHAIN_ARRAY(ek_filter, 1);
CHAIN_ARRAY(ek_behind, 1);
CHAIN_ARRAY(ek_crossing, 1);
CHAIN_ARRAY(ek_route, 1);
CHAIN_ARRAY(ek_link, 1);
CHAIN_ARRAY(ek_end, 1);
CHAIN_ARRAY(ek_rests, CHAIN_RESTS);

struct chain_state chain_state SEC(".data.chain") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct chain_name);
} ek_names SEC(".maps");

static __always_inline int from_end(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ek_end, 0);
	return XDP_PASS;
}

static __always_inline int from_link(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ek_link, 0);
	return from_end(ctx);
}

static __always_inline int from_route(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ek_route, 0);
	return from_link(ctx);
}

static __always_inline int from_behind(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ek_behind, 0);
	return from_route(ctx);
}

static __always_inline int from_filter(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ek_filter, 0);
	return from_behind(ctx);
}

/* The number in the name changes whenever the meaning of the places or of what they share does. */
SEC("xdp.frags")
int ek_chain1(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ek_before, 0);
	return from_filter(ctx);
}

/* What follows behind each place. */
SEC("xdp.frags")
int ek_rest_before(struct xdp_md *ctx)
{
	return from_filter(ctx);
}

SEC("xdp.frags")
int ek_rest_filter(struct xdp_md *ctx)
{
	return from_behind(ctx);
}

SEC("xdp.frags")
int ek_rest_behind(struct xdp_md *ctx)
{
	return from_route(ctx);
}

SEC("xdp.frags")
int ek_rest_route(struct xdp_md *ctx)
{
	return from_link(ctx);
}

SEC("xdp.frags")
int ek_rest_link(struct xdp_md *ctx)
{
	return from_end(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* For a program in a place of a chain: where it goes on to, and the state it shares. */
#pragma once

#include <stdbool.h>

#include "chain/chain.h"

/* The program is in a chain. */
const volatile bool chain_on = false;
/* Possible CPUs, rounded up to a power of two, less one. */
const volatile __u64 chain_cpus_mask = 0;

/* Named as in the chain: libbpf gives a map the name of the one that it stands for. */
CHAIN_ARRAY(ek_rests, CHAIN_RESTS);
struct chain_state chain_state SEC(".data.chain") = {};

static __always_inline struct chain_cpu *chain_cpu_of(struct chain_state *state, __u64 cpu)
{
	return resized(state->cpu) + (cpu & chain_cpus_mask);
}

/* A frame goes on to what is behind `place`, a constant; this returns if nothing is. Only in a program's main function: kernels bound what may
 * call from elsewhere. */
static __always_inline void chain_go_on(struct xdp_md *ctx, __u32 place)
{
	if (chain_on)
		bpf_tail_call(ctx, &ek_rests, place);
}

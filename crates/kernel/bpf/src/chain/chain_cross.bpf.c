/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What follows behind a filter that has sent the frame to another interface already; there only while a capture is, as crossing frames are in
 * a hurry. */
#include "lib/common.h"

#include "chain/chain.h"

CHAIN_ARRAY(ek_crossing, 1);

SEC("xdp.frags")
int ek_rest_cross(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ek_crossing, 0);
	return XDP_REDIRECT;
}

char _license[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Stands in a place that its owner has left until the kernel has emptied it: whoever comes next knows by that when it has. */
#include "lib/common.h"

#include "chain/place.h"

const volatile __u32 none_place = 0;

SEC("xdp.frags")
int ek_none(struct xdp_md *ctx)
{
	if (none_place == CHAIN_CROSSING)
		return XDP_REDIRECT;
	chain_go_on(ctx, none_place);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

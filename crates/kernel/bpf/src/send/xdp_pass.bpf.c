/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Lets every frame pass to the stack. What it is for: a veth end takes redirected and live frames only while it runs an XDP program. */
#include "lib/common.h"

SEC("xdp.frags")
int xdp_pass(struct xdp_md *ctx)
{

	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";

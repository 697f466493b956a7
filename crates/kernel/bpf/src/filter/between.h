/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Between two interfaces: what passes leaves by the other one, as it came, MAC addresses and all. */
#pragma once

#include "lib/common.h"

/* Index of the first interface: what came in by it leaves by entry 0, what came in by the other one by entry 1. */
const volatile __u32 shield_between_first = 0;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} shield_out SEC(".maps");

/* Beside the verdict: the frame crosses, and came by the first or the second interface. To ask again where it came by takes four loads. */
#define SHIELD_CROSSES_FIRST (1 << 8)
#define SHIELD_CROSSES_SECOND (1 << 9)

/* To the other interface; dropped, never to this host's stack, if that one is gone. */
static __always_inline int shield_cross(struct xdp_md *ctx)
{
	bool second = ctx->ingress_ifindex != shield_between_first;

	return bpf_redirect_map(&shield_out, second, XDP_DROP) | (second ? SHIELD_CROSSES_SECOND : SHIELD_CROSSES_FIRST);
}

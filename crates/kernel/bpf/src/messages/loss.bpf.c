/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A wire that loses frames: takes all that arrives on one interface to another one, but for some. */
#include "lib/common.h"

#include <linux/pkt_cls.h>

/* The other interface, and how many of 2^32 frames are lost. */
const volatile __u32 loss_to = 0;
const volatile __u32 loss_of = 0;

SEC("tc")
int ek_loss(struct __sk_buff *skb)
{
	if (loss_of && bpf_get_prandom_u32() < loss_of)
		return TC_ACT_SHOT;
	return bpf_redirect(loss_to, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";

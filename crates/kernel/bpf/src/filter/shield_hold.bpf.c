/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Holds an interface's frames back from this host's stack, and the stack's from the interface, while packet sockets carry them: those
 * read before tc ingress, and send past tc egress (PACKET_QDISC_BYPASS). */
#include "lib/common.h"

#include <linux/pkt_cls.h>

SEC("tc")
int shield_hold(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";

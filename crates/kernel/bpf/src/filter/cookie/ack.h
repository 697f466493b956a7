/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the shield's XDP program (filter/cookie/cookie.h) tells the program at tc (filter/shield_ack.bpf.c) about the ACK that ends a handshake. */
#pragma once

#include <linux/types.h>

#define SHIELD_ACK_MAGIC 0x5ac4

#define SHIELD_ACK_TIMESTAMPS 1
#define SHIELD_ACK_SACK 2
#define SHIELD_ACK_ECN 4
/* It follows such an ACK, of which TCP need not have heard yet: it only takes the same way. */
#define SHIELD_ACK_BEHIND 16

/* In tc_index of a packet that has been through the program at tc once. */
#define SHIELD_ACK_AGAIN 0x5ac4

/* No window scaling. */
#define SHIELD_NO_WSCALE 15

/* Before the frame, as XDP metadata: nobody outside can write there. Numbers in host order. */
struct shield_ack {
	__u16 magic;
	/* From the IP header to TCP's, in bytes. */
	__u16 transport;
	/* The client's MSS in bytes. */
	__u16 mss;
	/* SHIELD_ACK_*. */
	__u8 flags;
	/* The client's window shift, or SHIELD_NO_WSCALE, and ours. */
	__u8 wscale : 4, own_wscale : 4;
	/* Of the ACK. */
	__u32 tsval;
	__u32 tsecr;
};

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the parts of the shield's program have in common: a packet as its rules see it, and the verdicts. */
#pragma once

#include <stdbool.h>

#include "lib/common.h"

/* Fields of a packet, in the order of rules::tables. */
enum shield_field {
	SHIELD_SOURCE,
	SHIELD_DESTINATION,
	SHIELD_SOURCE_PORT,
	SHIELD_DESTINATION_PORT,
	SHIELD_KIND,
	SHIELD_DETAIL,
	SHIELD_HEADER,
	SHIELD_VLAN,
	SHIELD_LENGTH,
	SHIELD_FIELDS,
};

#define SHIELD_VLAN_NONE 4096
#define SHIELD_DETAIL_NONE 768

/* What parsing found. */
enum shield_parsed { SHIELD_IP, SHIELD_NOT_IP, SHIELD_MALFORMED };

enum shield_fragment { SHIELD_WHOLE, SHIELD_FIRST, SHIELD_LATER };

enum shield_action { SHIELD_PASS, SHIELD_DROP, SHIELD_LIMIT, SHIELD_CHALLENGE };

/* A packet as the rules see it. Numbers in host order, addresses as on the wire. */
struct shield_packet {
	/* IPv4 in the first word. */
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
	/* IPv4's total length, IPv6's payload length plus 40. */
	__u16 len;
	/* VLAN id of the outermost tag, or SHIELD_VLAN_NONE. */
	__u16 vlan;
	/* 4 or 6. */
	__u8 family;
	/* Behind all extension headers. */
	__u8 protocol;
	/* Of TCP; the type of ICMP and ICMPv6 likewise. */
	__u8 flags;
	/* enum shield_fragment. */
	__u8 fragment;
	__u8 dscp;
	/* It has ports: TCP, UDP, UDP-Lite, SCTP or DCCP, and not a later fragment. */
	bool has_ports;
	/* `flags` was read. */
	bool has_flags;
	__u8 pad;
	/* Where the IP header and the transport header begin, in bytes from the start of the frame. */
	__u16 ip_at;
	__u16 transport_at;
	/* EtherType behind the tags. */
	__u16 ethertype;
	/* The value of SHIELD_DETAIL. */
	__u16 detail;
	/* Of the frame without FCS. */
	__u32 frame_len;
};

/* Hides from the compiler how large a table is: user space has made it larger. */
#define shield_table(table)                    \
	({                                     \
		typeof(&(table)[0]) at = (table); \
		asm volatile("" : "+r"(at));   \
		at;                            \
	})

/* A number times a constant that user space sets. Kernels before 6.10 know the bounds of a product (and of OR and XOR) only when its right
 * side is the constant, and the compiler would choose the sides. */
static __always_inline __u64 shield_times(__u64 value, __u64 constant)
{
	asm volatile("%0 *= %1" : "+r"(value) : "r"(constant));
	return value;
}

/* The lowest bits of a number, for the verifier to see: the compiler leaves a mask out that changes nothing. */
static __always_inline __u64 shield_low(__u64 value, __u64 mask)
{
	asm volatile("" : "+r"(value));
	return value & mask;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The rules and their tables: a packet has nine fields, the value of each has a class, each class a row of bits, one per rule. The AND
 * of the rows is the set of rules that apply; its lowest bit is the first of them (Lakshman and Stiliadis 1998).
 *
 * Up to 64 rules a row is one word. With more, a row begins with a word that says which of the others are not zero. */
#pragma once

#include "filter/addresses.h"
#include "lib/parse.h"
#include "lib/verifier.h"

/* Rules that counters are kept for: those that hold and as many that follow them, or that are gone and may come back. */
#define SHIELD_COUNTERS 8192
#define SHIELD_WORDS 64

/* SHIELD_YIELDS: a challenge of what the rules behind it let pass; what they drop is dropped. */
enum shield_flags { SHIELD_SHADOW = 1, SHIELD_MANAGEMENT = 2, SHIELD_PER_SOURCE = 4, SHIELD_YIELDS = 8 };

struct shield_rule {
	/* enum shield_action. */
	__u8 action;
	/* enum shield_flags. */
	__u8 flags;
	__u16 counter;
	/* Prefix lengths by which a limit tells sources apart. */
	__u8 v4_len;
	__u8 v6_len;
	/* It decides for every packet that it applies to: no limit, no shadow, it does not yield and does not expire. */
	__u8 plain;
	__u8 pad;
	/* CLOCK_MONOTONIC in ns; 0: never. */
	__u64 expires_ns;
	/* Of a limit (lib/limit.h): between two packets, and of the burst less one packet. */
	__u64 interval;
	__u64 tolerance;
};

/* What became of the packets of one CPU, by rule. */
struct shield_count {
	__u64 packets;
	__u64 bytes;
	/* Of those, what exceeded the limit. */
	__u64 limited;
	__u64 pad;
};

/* What became of the packets of one CPU: the counters of model::shield_totals!, by their names. */
struct shield_total {
	__u64 passed;
	__u64 passed_bytes;
	__u64 dropped;
	__u64 dropped_bytes;
	/* Decided by no rule. */
	__u64 by_default;
	__u64 malformed;
	__u64 not_ip;
	/* Dropped by a limit. */
	__u64 limited;
	/* Answered by a SYN cookie, or ended by what checks them. */
	__u64 challenged;
	/* Passed, and dropped, because the heartbeat had stopped. */
	__u64 failed_open;
	__u64 failed_closed;
	/* Sources evicted from the table of limits while their limit was in use. */
	__u64 evicted_sources;
	/* When shield_failed() last saw the heart beat, as a number that changes with the time and the beat. */
	__u64 beat_looked;
	/* Counted by packet rings alone. */
	__u64 unanswered;
	__u64 missed;
	__u64 pad;
};

struct shield_cpu {
	struct shield_total total;
	struct shield_count rule[SHIELD_COUNTERS];
};

/* Resized and filled by user space before the program is attached, and then read only. */
struct shield_rule shield_rules[1] SEC(".data.sh_rules") = {};
__u64 shield_source_rows[1] SEC(".data.sh_source") = {};
__u64 shield_destination_rows[1] SEC(".data.sh_dest") = {};
/* All other fields' rows, and their values' classes. */
__u64 shield_rows[1] SEC(".data.sh_rows") = {};
__u16 shield_source_port_class[4] SEC(".data.sh_sport") = {};
__u16 shield_destination_port_class[4] SEC(".data.sh_dport") = {};
__u16 shield_kind_class[4] SEC(".data.sh_kind") = {};
__u16 shield_detail_class[4] SEC(".data.sh_detail") = {};
__u16 shield_header_class[4] SEC(".data.sh_header") = {};
__u16 shield_vlan_class[4] SEC(".data.sh_vlan") = {};
__u16 shield_length_class[4] SEC(".data.sh_length") = {};
__u16 shield_known_class[4] SEC(".data.sh_known") = {};
/* Where a row is one word: the rows of packets that parse_common() knows, for all fields but addresses, ports and length, joined. By TCP
 * flags, of UDP, and by DSCP. */
#define SHIELD_COMMON_UDP 256
#define SHIELD_COMMON_DSCP 257
__u64 shield_common_rows[1] SEC(".data.sh_common") = {};
/* By CPU: room for one struct shield_cpu each; shared by all programs that follow each other. */
struct shield_counts {
	struct shield_total total;
	struct shield_count rule[1];
} shield_counts[1] SEC(".data.sh_counts") = {};

/* Which fields any rule asks for, by enum shield_field. */
const volatile bool shield_uses[SHIELD_FIELDS] = {};
/* Which fields of packets that parse_common() knows any rule about TCP asks for, and any about UDP. */
const volatile bool shield_tcp_uses[SHIELD_FIELDS] = {};
const volatile bool shield_udp_uses[SHIELD_FIELDS] = {};
/* Whether the rows by DSCP differ; if not, they are in the others. */
const volatile bool shield_dscp_matters = false;
/* Words of a row, the leading one not counted. */
const volatile __u64 shield_words = 1;
/* Where the rows of a field begin, in rows, its number of classes rounded up to a power of two, less one, and the class of packets without it. */
const volatile __u64 shield_base[SHIELD_FIELDS] = {};
const volatile __u64 shield_mask[SHIELD_FIELDS] = {};
const volatile __u64 shield_absent[SHIELD_FIELDS] = {};
/* Rules, rounded up to 64 times a power of two, less one. */
const volatile __u64 shield_rules_mask = 0;
/* Possible CPUs, rounded up to a power of two, less one. */
const volatile __u64 shield_cpus_mask = 0;

/* Words from one row to the next. */
static __always_inline __u64 shield_stride(void)
{
	return shield_words == 1 ? 1 : shield_words + 1;
}

static __always_inline struct shield_cpu *shield_cpu_of(__u64 cpu)
{
	return (struct shield_cpu *)resized(shield_counts) + (cpu & shield_cpus_mask);
}

static __always_inline struct shield_cpu *shield_cpu(void)
{
	return shield_cpu_of(bpf_get_smp_processor_id());
}

/* The number of the lowest bit that is set; BPF has no instruction for it. (Leiserson, Prokop, Randall 1998.) From the product to the table clang 17
 * and later would see what this is, and make an instruction of it that their backends do not have (18) or expand without an end (17). */
static __always_inline __u64 shield_lowest(__u64 bits)
{
	static const __u8 number[64] = {
		0,  1,	48, 2,	57, 49, 28, 3,	61, 58, 50, 42, 38, 29, 17, 4,	62, 55, 59, 36, 53, 51,
		43, 22, 45, 39, 33, 30, 24, 18, 12, 5,	63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21,
		44, 32, 23, 11, 46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,	13, 8,	7,  6,
	};

	bits = (bits & -bits) * 0x03f79d71b4cb0a89ULL;
	keep(bits);
	return low_bits(number[bits >> 58], 63);
}

/* Where a packet's rows begin, in words within its table: for the source, the destination, and the others. */
struct shield_place {
	__u64 at[SHIELD_KNOWN];
};

#define SHIELD_CLASS(field, table, value)                                                             \
	do {                                                                                          \
		if (shield_uses[field])                                                               \
			place->at[field] = times(                                              \
				shield_base[field] + (resized(table)[value] & shield_mask[field]), \
				shield_stride());                                                     \
	} while (0)

#define SHIELD_PORT(field, table, value)                                                              \
	do {                                                                                          \
		if (shield_uses[field]) {                                                             \
			__u64 class = shield_absent[field];                                           \
                                                                                                      \
			if (p->has_ports)                                                             \
				class = resized(table)[value];                                   \
			place->at[field] = times(shield_base[field] + (class & shield_mask[field]), \
							shield_stride());                             \
		}                                                                                     \
	} while (0)

static __always_inline void shield_classify(const struct packet *p, struct shield_place *place)
{
	if (shield_uses[SHIELD_SOURCE])
		place->at[SHIELD_SOURCE] =
			times(shield_source_class(p) & shield_mask[SHIELD_SOURCE], shield_stride());
	if (shield_uses[SHIELD_DESTINATION])
		place->at[SHIELD_DESTINATION] =
			times(shield_destination_class(p) & shield_mask[SHIELD_DESTINATION], shield_stride());
	SHIELD_PORT(SHIELD_SOURCE_PORT, shield_source_port_class, low_bits(p->source_port, 0xffff));
	SHIELD_PORT(SHIELD_DESTINATION_PORT, shield_destination_port_class, low_bits(p->destination_port, 0xffff));
	SHIELD_CLASS(SHIELD_KIND, shield_kind_class, p->family == 6 ? 256 + p->protocol : p->protocol);
	SHIELD_CLASS(SHIELD_DETAIL, shield_detail_class, p->detail & 1023);
	SHIELD_CLASS(SHIELD_HEADER, shield_header_class, low_bits(p->dscp | p->fragment << 6, 255));
	SHIELD_CLASS(SHIELD_VLAN, shield_vlan_class, p->vlan & 8191);
	SHIELD_CLASS(SHIELD_LENGTH, shield_length_class, p->len);
}

/* Word `word` of the AND of a packet's rows, without what the machine knows about it. */
static __always_inline __u64 shield_apply(const struct shield_place *place, __u64 word)
{
	__u64 bits = ~0ULL;
	int i;

	if (shield_uses[SHIELD_SOURCE])
		bits &= resized(shield_source_rows)[place->at[SHIELD_SOURCE] + word];
	if (shield_uses[SHIELD_DESTINATION])
		bits &= resized(shield_destination_rows)[place->at[SHIELD_DESTINATION] + word];
#pragma clang loop unroll(full)
	for (i = SHIELD_SOURCE_PORT; i < SHIELD_KNOWN; i++)
		if (shield_uses[i])
			bits &= resized(shield_rows)[place->at[i] + word];
	return bits;
}

#define SHIELD_ROW(field, value) resized(shield_rows)[shield_base[field] + ((value) & shield_mask[field])]

/* `bits` AND the rows of those fields of a packet that parse_common() knows, where a row is one word. */
static __always_inline __u64 shield_apply_fields(const struct packet *p, const volatile bool *uses, __u64 bits)
{
	if (uses[SHIELD_SOURCE])
		bits &= resized(shield_source_rows)[shield_source_class(p) & shield_mask[SHIELD_SOURCE]];
	if (uses[SHIELD_DESTINATION])
		bits &= resized(shield_destination_rows)[shield_destination_class(p) & shield_mask[SHIELD_DESTINATION]];
	if (uses[SHIELD_SOURCE_PORT])
		bits &= SHIELD_ROW(SHIELD_SOURCE_PORT, resized(shield_source_port_class)[low_bits(p->source_port, 0xffff)]);
	if (uses[SHIELD_DESTINATION_PORT])
		bits &= SHIELD_ROW(SHIELD_DESTINATION_PORT, resized(shield_destination_port_class)[low_bits(p->destination_port, 0xffff)]);
	if (uses[SHIELD_LENGTH])
		bits &= SHIELD_ROW(SHIELD_LENGTH, resized(shield_length_class)[low_bits(p->len, 0xffff)]);
	return bits;
}

/* The rules that apply to a packet that parse_common() knows, where a row is one word. */
static __always_inline __u64 shield_apply_common(const struct packet *p)
{
	__u64 bits = ~0ULL;

	if (shield_dscp_matters)
		bits = resized(shield_common_rows)[SHIELD_COMMON_DSCP + (p->dscp & 63)];
	if (p->protocol == IPPROTO_TCP)
		return shield_apply_fields(p, shield_tcp_uses, bits & resized(shield_common_rows)[p->flags]);
	return shield_apply_fields(p, shield_udp_uses, bits & resized(shield_common_rows)[SHIELD_COMMON_UDP]);
}

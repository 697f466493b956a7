/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What comes to each protected prefix, counted for user space, which reads it through a mapping: exact counters, a sketch of distinct
 * sources, and a sample of packets. Every CPU writes lines of its own; the maps are made by user space (filter/watch.rs) and shared by
 * all programs that follow each other. */
#pragma once

#include "filter/addresses.h"
#include "lib/parse.h"
#include "lib/verifier.h"

/* Powers of two. */
#define WATCH_REGISTERS 512
#define WATCH_FLOWS 4096
#define WATCH_SAMPLES 1024

/* Of each packet one kind is counted. A SYN is one without ACK. */
enum watch_kind { WATCH_SYN, WATCH_SYN_ACK, WATCH_TCP, WATCH_UDP, WATCH_ICMP, WATCH_OTHER, WATCH_KINDS };

/* One prefix on one CPU. */
struct watch_slot {
	__u64 packets;
	/* Of frames without FCS. */
	__u64 bytes;
	/* By enum watch_kind. */
	__u64 kinds[WATCH_KINDS];
	/* Also counted in their kind. */
	__u64 fragments;
	/* Packets of a flow that is not among those that this CPU has seen last. */
	__u64 new_flows;
	__u64 pad[6];
	/* Two generations of a sketch of the sources, one behind the other. Each source's hash has one register, which keeps the largest; 0: none came.
	 * The distance of the largest from the top is exponentially distributed with the number of sources, so that the registers
	 * together tell it (filter/watch.rs). User space names the generation that is written, and reads and clears the other. */
	__u32 largest[2 * WATCH_REGISTERS];
};

/* A packet that was sampled. */
struct watch_sample {
	/* Its number among the samples of the CPU, from 1; written last. */
	__u64 sequence;
	/* As in struct packet. */
	__u32 source[4];
	__u32 destination[4];
	/* Of the prefix, from 0. */
	__u32 number;
	__u16 source_port;
	__u16 destination_port;
	__u16 len;
	__u16 vlan;
	__u8 family;
	__u8 protocol;
	__u8 flags;
	__u8 fragment;
	__u8 dscp;
	/* 1: it has ports; 2: it has flags. */
	__u8 has;
	__u16 pad;
};

/* One CPU. */
struct watch_cpu {
	/* Samples written so far. */
	__u64 samples;
	/* Of the generator that picks samples. */
	__u64 random;
	/* Written by user space for user space, which finds it in pinned maps: watch_seed. */
	__u64 seed;
	__u64 pad[5];
	/* Written by user space: a packet is sampled with a chance of 1 in (mask + 1). */
	__u32 sample_mask;
	/* Written by user space: the generation of the sketch that is written, by its lowest bit. */
	__u32 generation;
	__u64 pad_too[7];
	/* A part of the hash of the flow that came last, by another part. */
	__u32 flows[WATCH_FLOWS];
	struct watch_sample ring[WATCH_SAMPLES];
};

/* Something is watched; if not, all of this is compiled out. */
const volatile bool watch_on = false;
/* Prefixes and possible CPUs, each rounded up to a power of two, less one. */
const volatile __u64 watch_prefixes_mask = 0;
const volatile __u64 watch_cpus_mask = 0;
/* Odd, random: nobody outside can choose sources that share a register. */
const volatile __u64 watch_seed = 0x9e3779b97f4a7c15ULL;

/* By CPU times the prefixes, plus prefix; resized by user space and shared by all programs that follow each other. */
struct watch_slot watch_slots[1] SEC(".data.sh_wslot") = {};
/* By CPU; likewise. */
struct watch_cpu watch_cpus[1] SEC(".data.sh_wcpu") = {};

static __always_inline __u64 watch_mix(__u64 value)
{
	value *= watch_seed;
	return value ^ (value >> 32);
}

static __always_inline __u32 watch_tcp_kind(__u8 flags)
{
	if (!(flags & TCP_SYN))
		return WATCH_TCP;
	return flags & TCP_ACK ? WATCH_SYN_ACK : WATCH_SYN;
}

static __always_inline __u32 watch_kind(const struct packet *p)
{
	switch (p->protocol) {
	case IPPROTO_TCP:
		return p->has_flags ? watch_tcp_kind(p->flags) : WATCH_TCP;
	case IPPROTO_UDP:
		return WATCH_UDP;
	case IPPROTO_ICMP:
	case PROTOCOL_ICMPV6:
		return WATCH_ICMP;
	default:
		return WATCH_OTHER;
	}
}

static __always_inline void watch_write_sample(struct watch_cpu *cpu, const struct packet *p, __u32 number)
{
	__u64 sequence = cpu->samples + 1;
	struct watch_sample *to = &cpu->ring[sequence & (WATCH_SAMPLES - 1)];

	to->sequence = 0;
	barrier();
	__builtin_memcpy(to->source, p->source, sizeof(to->source));
	__builtin_memcpy(to->destination, p->destination, sizeof(to->destination));
	to->number = number;
	to->source_port = p->source_port;
	to->destination_port = p->destination_port;
	to->len = p->len;
	to->vlan = p->vlan;
	to->family = p->family;
	to->protocol = p->protocol;
	to->flags = p->flags;
	to->fragment = p->fragment;
	to->dscp = p->dscp;
	to->has = (p->has_ports ? 1 : 0) | (p->has_flags ? 2 : 0);
	barrier();
	to->sequence = sequence;
	cpu->samples = sequence;
}

/* Counts a packet to the protected prefix `protected` (as shield_protected() tells it: number + 1; 0: none, nothing is done), of that
 * enum watch_kind, on the CPU `on`. To be called before any rule decides, so that an attack does not seem to end when it is dropped. */
static __always_inline void shield_watch(const struct packet *p, __u32 protected, __u64 on, __u32 kind)
{
	__u32 number = protected - 1;
	struct watch_slot *slot;
	struct watch_cpu *cpu;
	__u64 source, flow;
	__u32 *largest;
	__u64 at;

	if (!watch_on || !protected)
		return;
	at = on & watch_cpus_mask;
	cpu = &resized(watch_cpus)[at];
	slot = &resized(watch_slots)[times(at, watch_prefixes_mask + 1) + (number & watch_prefixes_mask)];
	slot->packets++;
	slot->bytes += p->frame_len;
	if (kind < WATCH_KINDS)
		slot->kinds[kind]++;
	if (p->fragment != FRAGMENT_NONE)
		slot->fragments++;

	/* IPv6 sources by their /64: a host has all of it. */
	source = p->family == 4 ? p->source[0] : p->source[0] | (__u64)p->source[1] << 32;
	source = watch_mix(source);
	source = watch_mix(source);
	at = (cpu->generation & 1) * WATCH_REGISTERS + (source & (WATCH_REGISTERS - 1));
	largest = &slot->largest[low_bits(at, 2 * WATCH_REGISTERS - 1)];
	if (*largest < (__u32)(source >> 32))
		*largest = source >> 32;

	flow = source ^ p->destination[0] ^ (__u64)p->destination[3] << 24;
	flow ^= (__u64)p->source_port << 48 ^ (__u64)p->destination_port << 32 ^ p->protocol;
	flow = watch_mix(flow);
	at = flow & (WATCH_FLOWS - 1);
	if (cpu->flows[at] != (__u32)(flow >> 32)) {
		cpu->flows[at] = flow >> 32;
		slot->new_flows++;
	}

	/* Knuth's linear congruential generator; its upper bits are the good ones. */
	cpu->random = cpu->random * 6364136223846793005ULL + 1442695040888963407ULL;
	if (!((__u32)(cpu->random >> 32) & cpu->sample_mask))
		watch_write_sample(cpu, p, number);
}

/* The same for any packet, the prefix looked up. A global function: verified once, by itself. */
__noinline int shield_watch_any(const struct packet *p)
{
	if (p)
		shield_watch(p, shield_protected(p), bpf_get_smp_processor_id(), watch_kind(p));
	return 0;
}

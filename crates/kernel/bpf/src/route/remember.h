/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Where frames go: asked of the kernel once, then remembered by each CPU. */
#pragma once

#include <stdbool.h>

#include "lib/common.h"
#include "lib/verifier.h"
#include "route/route.h"

#define ROUTE_AF_INET 2
#define ROUTE_AF_INET6 10
/* BPF_FIB_LOOKUP_SKIP_NEIGH (6.3). */
#define ROUTE_SKIP_NEIGH 4

/* The port that this program runs on: its number, and its interface's. */
const volatile __u32 route_port = 0;
const volatile __u32 route_ifindex = 0;
/* Next hops that a CPU remembers, a power of two, less one. */
const volatile __u32 route_slots_mask = 0;

struct route_config route_config SEC(".data.route") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_count);
} route_counts SEC(".maps");

/* Where frames leave, by the port's number. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, ROUTE_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} route_ports SEC(".maps");

/* By the interface's number, VLAN devices included. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct route_way);
} route_ways SEC(".maps");

/* The interface's number of a VLAN device, by port << 12 | id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} route_tags SEC(".maps");

/* Neighbours that frames were sent to, with the time of the last answer of the kernel's that named them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct route_hop);
	__type(value, __u64);
} route_hops SEC(".maps");

/* All that a next hop may depend on. */
struct route_key {
	__u32 to[4];
	__u32 from[4];
	__be32 ports;
	__be32 label;
	__u32 way;
	__u32 by;
	__u8 protocol;
	__u8 tos;
};

#ifdef ROUTE_TRACKS
/* The translation of a frame. */
struct route_nat {
	__u32 from[4];
	__u32 to[4];
	__be32 ports;
	/* What the checksums change by: that of IPv4, and that of TCP or UDP. */
	__u64 addresses;
	__u64 all;
	bool tcp;
};
#endif

/* What becomes of a frame, and how it looks when it leaves. */
struct route_decision {
	struct route_count *count;
	__u32 end;
	__u32 frame_len;
	__u32 ip_at;
	__u32 ip_len;
	__u32 port;
	__u32 ifindex;
	__u16 in_tag;
	__u16 out_tag;
	__u16 family;
	__u8 hop_limit;
	__u8 macs[12];
#ifdef ROUTE_TRACKS
	bool shadow;
	/* The interface that all of a masqueraded connection leaves by; 0: any. */
	__u32 leaves;
	/* None: it is not translated. */
	struct route_nat *nat;
#endif
};

/* What follows the key in an answer. */
struct route_answer {
	__u64 generation;
	__u32 ifindex;
	__u16 port;
	__u16 tag;
	__u16 mtu;
	__u8 macs[12];
	__u16 pad;
};

struct route_slot_v4 {
	__u64 ends;
	__u64 rest;
	struct route_answer answer;
	__u64 pad[2];
};

struct route_slot_v6 {
	__u64 to[2];
	__u64 from[2];
	__u64 rest;
	__u64 label;
	struct route_answer answer;
	__u64 pad[6];
};

/* Slots of each CPU, set at load time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_slot_v4);
} route_slots_v4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_slot_v6);
} route_slots_v6 SEC(".maps");

/* An address that is this machine's own sets its bit; one in some thousands of others has the same. */
static __always_inline bool route_may_be_own(__u32 address)
{
	__u32 bit = (address * 0x9e3779b1U) >> 20;

	return route_config.local[bit / 64] >> (bit & 63) & 1;
}

static __always_inline __u32 route_slot(__u64 a, __u64 b)
{
	__u64 hash = (a ^ (a >> 29)) * 0x9e3779b97f4a7c15ULL;

	hash ^= b * 0xc2b2ae3d27d4eb4fULL;
	hash ^= hash >> 32;
	hash *= 0x165667b19e3779f9ULL;
	return bpf_get_smp_processor_id() * (route_slots_mask + 1) + ((__u32)(hash >> 33) & route_slots_mask);
}

/* The kernel's answer, by the number of its reason. */
static __always_inline enum route_end route_refusal(long found)
{
	switch (found) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return ROUTE_REFUSED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return ROUTE_NO_FORWARDING;
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return ROUTE_WRAPPED;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return ROUTE_NO_NEIGHBOUR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return ROUTE_TOO_BIG;
	default:
		/* Local, broadcast, no route. */
		return ROUTE_LOCAL;
	}
}

/* Whether frames from there may come this way in. */
static __always_inline bool route_leads_back(struct xdp_md *ctx, const struct route_key *k, bool strict)
{
	struct bpf_fib_lookup fib = {};

	fib.family = ROUTE_AF_INET;
	fib.tos = k->tos;
	fib.ifindex = k->way;
	fib.ipv4_src = k->to[0];
	fib.ipv4_dst = k->from[0];
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), ROUTE_SKIP_NEIGH) != BPF_FIB_LKUP_RET_SUCCESS)
		return false;
	return !strict || fib.ifindex == k->way;
}

static __always_inline void route_used(const struct bpf_fib_lookup *fib)
{
	struct route_hop hop = { .ifindex = fib->ifindex, .family = fib->family };
	__u64 now = bpf_ktime_get_coarse_ns(), *before;

	if (hop.family == ROUTE_AF_INET)
		hop.address[0] = fib->ipv4_dst;
	else
		__builtin_memcpy(hop.address, fib->ipv6_dst, sizeof(hop.address));
	/* A look costs less than an update. */
	before = bpf_map_lookup_elem(&route_hops, &hop);
	if (!before)
		bpf_map_update_elem(&route_hops, &hop, &now, BPF_ANY);
	else if (*before != now)
		*before = now;
}

/* Asks the kernel. A function of its own: it is rarely called, and has a stack of its own. */
static __noinline int route_ask(struct xdp_md *ctx, struct route_key *k, struct route_answer *answer, __u32 len, __u32 version)
{
	struct bpf_fib_lookup fib = {};
	struct route_way *in, *out;
	__u32 index;
	long found;

	if (!k || !answer)
		return ROUTE_LOCAL;
	fib.family = version == 4 ? ROUTE_AF_INET : ROUTE_AF_INET6;
	fib.l4_protocol = k->protocol;
	/* Frames are held against the limit one by one: this one has only to be let through. */
	fib.tot_len = len;
	fib.ifindex = k->way;
	fib.sport = k->ports;
	fib.dport = k->ports >> 16;
	if (version == 4) {
		fib.tos = k->tos;
		fib.ipv4_src = k->from[0];
		fib.ipv4_dst = k->to[0];
	} else {
		fib.flowinfo = k->label;
		__builtin_memcpy(fib.ipv6_src, k->from, sizeof(k->from));
		__builtin_memcpy(fib.ipv6_dst, k->to, sizeof(k->to));
	}
	found = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
		return route_refusal(found);
	index = fib.ifindex;
	out = bpf_map_lookup_elem(&route_ways, &index);
	if (!out || !(out->flags & ROUTE_WAY_OUT))
		return ROUTE_NOT_A_PORT;
	index = k->way;
	in = bpf_map_lookup_elem(&route_ways, &index);
	if (!in)
		return ROUTE_NOT_A_PORT;
	if (fib.ifindex == k->way && (version == 6 || in->flags & ROUTE_WAY_REDIRECTS))
		return ROUTE_SAME_WAY;
	if (version == 4 && in->flags & (ROUTE_WAY_STRICT | ROUTE_WAY_LOOSE) && !route_leads_back(ctx, k, in->flags & ROUTE_WAY_STRICT))
		return ROUTE_REVERSE_PATH;
	answer->ifindex = fib.ifindex;
	answer->port = out->port;
	answer->tag = out->tag;
	/* The limit of the way, which shares its place with the length that was asked about. */
	answer->mtu = fib.mtu_result;
	__builtin_memcpy(answer->macs, fib.dmac, 6);
	__builtin_memcpy(answer->macs + 6, fib.smac, 6);
	route_used(&fib);
	return ROUTE_FORWARDED;
}

static __always_inline void route_take(struct route_decision *d, const struct route_answer *answer)
{
	d->port = answer->port;
	d->ifindex = answer->ifindex;
	d->out_tag = answer->tag;
	__builtin_memcpy(d->macs, answer->macs, sizeof(d->macs));
}

static __always_inline bool route_is_v6(const struct route_slot_v6 *slot, const __u64 *to, const __u64 *from, __u64 rest, __u64 label)
{
	return slot->to[0] == to[0] && slot->to[1] == to[1] && slot->rest == rest && slot->label == label &&
	       (!from || (slot->from[0] == from[0] && slot->from[1] == from[1]));
}

/* Where the frame goes. */
static __always_inline enum route_end route_find(struct xdp_md *ctx, struct route_decision *d, struct route_key *k, __u32 version)
{
	__u64 generation = *(volatile __u64 *)&route_config.generation;
	struct route_answer asked = {}, *answer = 0;
	struct route_slot_v4 *v4 = 0;
	struct route_slot_v6 *v6 = 0;
	__u64 rest, ends, label;
	__u32 by = k->by, at;
	bool known = false;
	int end;

	rest = (__u64)k->way << 32;
	if (by & ROUTE_BY_PORTS)
		rest |= k->ports;
	/* Different protocols may use the same ports, and a rule may name one of them. */
	label = 0;
	if (by & (ROUTE_BY_PORTS | ROUTE_BY_TOS | ROUTE_BY_LABEL)) {
		if (by & ROUTE_BY_PORTS)
			label |= k->protocol;
		if (by & ROUTE_BY_TOS)
			label |= (__u64)k->tos << 8;
		if (version == 6 && by & ROUTE_BY_LABEL)
			label |= (__u64)k->label << 32;
	}
	if (version == 4) {
		ends = k->to[0];
		if (by & ROUTE_BY_SOURCE)
			ends |= (__u64)k->from[0] << 32;
		/* The way's number leaves the upper half free: an interface's number is far below 2^16 here. */
		rest ^= label << 48;
		at = route_slot(ends, rest);
		v4 = bpf_map_lookup_elem(&route_slots_v4, &at);
		if (!v4)
			return ROUTE_LOCAL;
		known = v4->ends == ends && v4->rest == rest;
		if (!known && v4->answer.generation == generation) {
			/* It is taken. The other one of the pair is looked at, and taken if both are. */
			at ^= 1;
			v4 = bpf_map_lookup_elem(&route_slots_v4, &at);
			if (!v4)
				return ROUTE_LOCAL;
			known = v4->ends == ends && v4->rest == rest;
		}
		answer = &v4->answer;
	} else {
		__u64 *to = (__u64 *)k->to, *from = (__u64 *)k->from;

		if (!(by & ROUTE_BY_SOURCE))
			from = 0;
		at = route_slot(to[0] ^ (to[1] << 7 | to[1] >> 57), rest ^ label ^ (from ? from[0] ^ from[1] * 3 : 0));
		v6 = bpf_map_lookup_elem(&route_slots_v6, &at);
		if (!v6)
			return ROUTE_LOCAL;
		known = route_is_v6(v6, to, from, rest, label);
		if (!known && v6->answer.generation == generation) {
			at ^= 1;
			v6 = bpf_map_lookup_elem(&route_slots_v6, &at);
			if (!v6)
				return ROUTE_LOCAL;
			known = route_is_v6(v6, to, from, rest, label);
		}
		answer = &v6->answer;
	}
	if (known && answer->generation == generation) {
		if (d->ip_len > answer->mtu)
			return ROUTE_TOO_BIG;
		route_take(d, answer);
		return ROUTE_FORWARDED;
	}
	end = route_ask(ctx, k, &asked, d->ip_len, version);
	if (end != ROUTE_FORWARDED)
		return end;
	d->count->looked_up++;
	route_take(d, &asked);
	if (by & ROUTE_FORGETS)
		return ROUTE_FORWARDED;
	asked.generation = generation;
	if (v4) {
		v4->ends = ends;
		v4->rest = rest;
		v4->answer = asked;
	} else if (v6) {
		__u64 *to = (__u64 *)k->to, *from = (__u64 *)k->from;

		v6->to[0] = to[0];
		v6->to[1] = to[1];
		v6->from[0] = from[0];
		v6->from[1] = from[1];
		v6->rest = rest;
		v6->label = label;
		v6->answer = asked;
	}
	return ROUTE_FORWARDED;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Addresses to classes: what a packet's source and destination are to the rules, and which protected prefix it goes to.
 * The tables are those of rules::tables::prefixes, which says how they are made; sections are resized and filled before they are loaded. */
#pragma once

#include "filter/shield.h"

/* Where the states are behind their head, which begins with the most usual class (STATES_HEAD and STATES_FINE). */
#define SHIELD_WIDE 64
#define SHIELD_FINE (SHIELD_WIDE + (1 << 14))
/* Of a state: all of it has class 0 or the usual one; if not, the tables behind say. */
#define SHIELD_USUAL 1
/* Of an entry of `top`: some /24 differ from the others, `bits` says which. */
#define SHIELD_SPLIT 0x8000u
/* Of an entry of a /24: a block, not a class. */
#define SHIELD_BLOCK 0x80000000u
/* Of an entry of a /24: class 0 and the usual one take turns, at three addresses. */
#define SHIELD_TURNS 0x40000000u
/* Of the first word of a block. */
#define SHIELD_LONG 0x40000000u
#define SHIELD_LIST_END 255
#define SHIELD_PROBES 32
/* Lengths of 33 to 128 bits. */
#define SHIELD_LENGTHS 96

struct shield_trie {
	/* Bytes from the section's start to each part. */
	__u32 states, top, bits, entries, blocks, runs;
	/* How many there are. */
	__u32 entries_len, blocks_len, runs_len;
	/* 0: no prefix of this family, all addresses have class 0. */
	__u32 used;
	/* The states of /16 are looked at. */
	__u32 wide;
	/* Where the states of /22 are; 0: they are not there. */
	__u32 deep;
};

struct shield_prefixes {
	struct shield_trie v4, v6;
	/* Bytes from the section's start to each part, and how many there are. */
	__u32 kinds, lengths, slots;
	__u32 kinds_len, lengths_len, slot_mask;
	/* Keys of the hash function of slots. */
	__u64 hash[4];
};

struct shield_kind {
	__u32 list;
	__u32 class;
};

struct shield_slot {
	__u64 high, low;
	__u16 len;
	__u16 class;
	__u32 pad;
};

/* One section a field, each with all of its parts, and where they are in it. */
__u64 shield_source_data[1] SEC(".data.shield_src");
__u64 shield_destination_data[1] SEC(".data.shield_dst");
__u64 shield_protected_data[1] SEC(".data.shield_prot");
const volatile struct shield_prefixes shield_source_prefixes;
const volatile struct shield_prefixes shield_destination_prefixes;
const volatile struct shield_prefixes shield_protected_prefixes;

static __always_inline __u32 shield_ones(__u64 x)
{
	x -= (x >> 1) & 0x5555555555555555;
	x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (x * 0x0101010101010101) >> 56;
}

/* Keeps the compiler from comparing a copy of a number whose bounds the verifier then does not know. */
#define shield_keep(x) asm volatile("" : "+r"(x))

/* Has the verifier forget what it knows of a number, so that paths which differ by it alone are one path again. `other` is any number
 * that it does not know. */
#define shield_forget(x, other)          \
	do {                             \
		x ^= (other);            \
		asm volatile("" : "+r"(x)); \
		x ^= (other);            \
	} while (0)

/* A /24 of several classes: its block has up to four runs, or says where the longer list is. Indices are 64 bits wide, since the
 * verifier forgets bounds where the upper half is cut off. */
static __always_inline __u32 shield_trie_block(const void *data, const volatile struct shield_trie *t, __u64 number,
					       __u64 low)
{
	const __u32 *block;
	__u64 run, at, end;
	__u32 step;

	shield_keep(number);
	if (number >= t->blocks_len)
		return 0;
	block = data + t->blocks + number * 16;
	run = block[0];
	if (!(run & SHIELD_LONG)) {
		if (block[1] >> 16 <= low)
			run = block[1];
		if (block[2] >> 16 <= low)
			run = block[2];
		if (block[3] >> 16 <= low)
			run = block[3];
		return run & 0xffff;
	}
	at = block[1];
	end = at + (run & 0xffff);
	if (end > t->runs_len)
		end = t->runs_len;
	/* The last run that does not begin behind the address; the first begins at 0. */
#pragma clang loop unroll(full)
	for (step = 128; step; step >>= 1) {
		__u64 next = at + step;

		shield_keep(next);
		if (next < t->runs_len && next < end &&
		    *(const __u32 *)(data + t->runs + next * 4) >> 16 <= low)
			at = next;
		shield_forget(at, end);
	}
	shield_keep(at);
	if (at >= t->runs_len)
		return 0;
	return *(const __u32 *)(data + t->runs + at * 4) & 0xffff;
}

/* The state of the /16, /20 or /22 of that number. */
static __always_inline __u32 shield_state(const void *states, __u32 number)
{
	return *(const __u8 *)(states + (number >> 2)) >> (2 * (number & 3)) & 3;
}

/* The class of 32 bits, in host order, where the states do not say. */
static __always_inline __u32 shield_trie_further(const void *data, const volatile struct shield_trie *t, __u32 address)
{
	__u32 bit = (address >> 8) & 63;
	__u64 top, word, rank, entry, turns;

	top = *(const __u64 *)(data + t->top + (__u64)(address >> 16) * 8);
	/* Without entries there are no bits either. */
	if (!(top & SHIELD_SPLIT) || !t->entries_len)
		return top & 0x7fff;
	word = *(const __u64 *)(data + t->bits + (__u64)(address >> 14) * 8);
	if (!((word >> bit) & 1))
		return top & 0x7fff;
	/* The entry's number: where those of the /16 begin, how many the words before have, and the bits before. */
	rank = (top >> 16) & 0xffffff;
	rank += (((top >> 32) & 0xffffff00) >> (8 * ((address >> 14) & 3))) & 0xff;
	rank += shield_ones(word & ((1ull << bit) - 1));
	shield_keep(rank);
	if (rank >= t->entries_len)
		return 0;
	entry = *(const __u32 *)(data + t->entries + rank * 4);
	if (entry & SHIELD_BLOCK)
		return shield_trie_block(data, t, entry & ~SHIELD_BLOCK, address & 0xff);
	if (!(entry & SHIELD_TURNS))
		return entry;
	/* One for each turn that does not begin behind the address: what is behind makes a difference that is not negative. */
	turns = entry >> 24;
	turns += (((entry & 0xff) - 1 - (address & 0xff)) >> 63) + (((entry >> 8 & 0xff) - 1 - (address & 0xff)) >> 63) +
		 (((entry >> 16 & 0xff) - 1 - (address & 0xff)) >> 63);
	return *(const __u16 *)(data + t->states) & -(turns & 1);
}

/* The class of 32 bits, in host order. The states are small enough for the caches, and say it for most addresses. No branch tells the two
 * usual ones apart: at random sources it would go wrong. */
static __always_inline __u32 shield_trie_find(const void *data, const volatile struct shield_trie *t, __u32 address)
{
	const void *states = data + t->states;
	__u32 state = SHIELD_USUAL + 1;

	if (!t->used)
		return 0;
	if (t->wide)
		state = shield_state(states + SHIELD_WIDE, address >> 16);
	if (state > SHIELD_USUAL)
		state = shield_state(states + SHIELD_FINE, address >> 12);
	if (t->deep && state > SHIELD_USUAL)
		state = shield_state(data + t->deep, address >> 10);
	if (state > SHIELD_USUAL)
		return shield_trie_further(data, t, address);
	return *(const __u16 *)states & -(__u64)state;
}

/* The class of a prefix of IPv6 plus 1, 0 if it is not in the table. */
static __always_inline __u32 shield_v6_find(const void *data, const volatile struct shield_prefixes *p, __u64 high,
					    __u64 low, __u32 len)
{
	__u64 hash;
	__u32 probe;

	if (!p->v6.used)
		return 0;
	high &= len >= 64 ? ~0ull : ~0ull << ((64 - len) & 63);
	low &= len <= 64 ? 0 : ~0ull << ((128 - len) & 63);
	/* As V6Hash::place in rules::tables::prefixes. */
	hash = (((__u64)len << 32 | (__u32)high) + p->hash[0]) * ((high >> 32) + p->hash[1]);
	hash += ((__u32)low + p->hash[2]) * ((low >> 32) + p->hash[3]);
	hash = ((hash ^ (hash >> 32)) * 0x94d049bb133111eb) >> 32;
	for (probe = 0; probe < SHIELD_PROBES; probe++) {
		const struct shield_slot *slot = data + p->slots + ((hash + probe) & p->slot_mask) * sizeof(*slot);

		if (!slot->len)
			return 0;
		if (slot->len == len && slot->high == high && slot->low == low)
			return slot->class + 1;
	}
	return 0;
}

/* A function of its own, verified once: the loop over lengths around it would multiply its paths. */
__noinline __u32 shield_v6_probe(__u32 which, __u64 high, __u64 low, __u32 len)
{
	if (which == SHIELD_SOURCE)
		return shield_v6_find(shield_source_data, &shield_source_prefixes, high, low, len);
	if (which == SHIELD_DESTINATION)
		return shield_v6_find(shield_destination_data, &shield_destination_prefixes, high, low, len);
	return shield_v6_find(shield_protected_data, &shield_protected_prefixes, high, low, len);
}

/* Longer prefixes of IPv6, the longest first; `number` is what the first 32 bits say. */
static __always_inline __u32 shield_v6_long(const void *data, const volatile struct shield_prefixes *p, __u32 which,
					    const __u32 *address, __u32 number)
{
	const struct shield_kind *kind;
	__u64 high, low;
	__u32 i;

	if (number >= p->kinds_len)
		return 0;
	kind = data + p->kinds + (__u64)number * sizeof(*kind);
	if (!kind->list)
		return kind->class;
	high = (__u64)bpf_ntohl(address[0]) << 32 | bpf_ntohl(address[1]);
	low = (__u64)bpf_ntohl(address[2]) << 32 | bpf_ntohl(address[3]);
	for (i = 0; i < SHIELD_LENGTHS; i++) {
		__u64 at = (__u64)kind->list + i;
		__u32 len, class;

		shield_keep(at);
		if (at >= p->lengths_len)
			break;
		len = *(const __u8 *)(data + p->lengths + at);
		if (len == SHIELD_LIST_END)
			break;
		class = shield_v6_probe(which, high, low, len);
		if (class)
			return class - 1;
	}
	return kind->class;
}

static __always_inline __u32 shield_class(const void *data, const volatile struct shield_prefixes *p, __u32 which,
					  __u8 family, const __u32 *address)
{
	__u32 class = 0;

	if (family == 4)
		class = shield_trie_find(data, &p->v4, shield_low(bpf_ntohl(address[0]), 0xffffffff));
	else if (p->v6.used)
		class = shield_v6_long(data, p, which, address,
				       shield_trie_find(data, &p->v6, shield_low(bpf_ntohl(address[0]), 0xffffffff)));
	shield_forget(class, address[0]);
	return class;
}

static __always_inline __u32 shield_source_class(const struct shield_packet *packet)
{
	return shield_class(shield_source_data, &shield_source_prefixes, SHIELD_SOURCE, packet->family, packet->source);
}

static __always_inline __u32 shield_destination_class(const struct shield_packet *packet)
{
	return shield_class(shield_destination_data, &shield_destination_prefixes, SHIELD_DESTINATION, packet->family,
			    packet->destination);
}

/* The number of the protected prefix plus 1; 0: none. */
static __always_inline __u32 shield_protected(const struct shield_packet *packet)
{
	return shield_class(shield_protected_data, &shield_protected_prefixes, SHIELD_FIELDS, packet->family,
			    packet->destination);
}

/* Up to four protected prefixes of IPv4, the longest first, as on the wire; number + 1, or 0: unused. If there are none, those of IPv4 are in
 * the table. */
#define SHIELD_FEW 4
const volatile __u32 shield_few_address[SHIELD_FEW] = {};
const volatile __u32 shield_few_mask[SHIELD_FEW] = {};
const volatile __u32 shield_few_number[SHIELD_FEW] = {};

/* shield_protected() of an IPv4 packet. */
static __always_inline __u32 shield_protected_v4(const struct shield_packet *packet)
{
	__u32 number = 0;
	int i;

	if (!shield_few_number[0])
		return shield_protected(packet);
#pragma clang loop unroll(full)
	for (i = SHIELD_FEW - 1; i >= 0; i--)
		if (shield_few_number[i] && (packet->destination[0] & shield_few_mask[i]) == shield_few_address[i])
			number = shield_few_number[i];
	return number;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Addresses to classes by their prefixes: DIR-24-8 for IPv4 and for the first 32 bits of IPv6, a hash table behind those.
 * The tables are those of rules::tables::prefixes, which says how they are made; a program has each of its own in one section, which is resized
 * and filled before it is loaded. */
#pragma once

#include "lib/verifier.h"

/* Where the states are behind their head, which begins with the most usual class (STATES_HEAD and STATES_FINE). */
#define PREFIX_WIDE 64
#define PREFIX_FINE (PREFIX_WIDE + (1 << 14))
/* Of a state: all of it has class 0 or the usual one; if not, the tables behind say. */
#define PREFIX_USUAL 1
/* Sixteen states are read as one word. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the states of /20 are in the order of little-endian machines");
/* Of an entry of `top`: some /24 differ from the others, `bits` says which. */
#define PREFIX_SPLIT 0x8000u
/* Of an entry of a /24: a block, not a class. */
#define PREFIX_BLOCK 0x80000000u
/* Of an entry of a /24: class 0 and the usual one take turns, at three addresses. */
#define PREFIX_ALTERNATE 0x40000000u
/* Of the first word of a block. */
#define PREFIX_MANY_RUNS 0x40000000u
#define PREFIX_LIST_END 255
#define PREFIX_PROBES 32
/* Lengths of 33 to 128 bits. */
#define PREFIX_LENGTHS 96

struct prefix_trie {
	/* Bytes from the section's start to each part. */
	__u32 states, top, bits, entries, blocks, runs;
	/* How many there are. */
	__u32 entries_len, blocks_len, runs_len;
	/* 0: no prefix of this family, all addresses have class 0. */
	__u32 used;
	/* The states of /16 are looked at. */
	__u32 wide;
	/* Where the ranks of /16 and the states of /24 are, and how many of these there are. */
	__u32 ranks, deep, deep_len;
};

struct prefix_table {
	struct prefix_trie v4, v6;
	/* Bytes from the section's start to each part, and how many there are. */
	__u32 kinds, lengths, slots;
	__u32 kinds_len, lengths_len, slot_mask;
	/* Keys of the hash function of slots. */
	__u64 hash[4];
};

struct prefix_kind {
	__u32 list;
	__u32 class;
};

struct prefix_slot {
	__u64 high, low;
	__u16 len;
	__u16 class;
	__u32 pad;
};

static __always_inline __u32 count_ones(__u64 x)
{
	x -= (x >> 1) & 0x5555555555555555;
	x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (x * 0x0101010101010101) >> 56;
}

/* A /24 of several classes: its block has up to four runs, or says where the longer list is. Indices are 64 bits wide, since the
 * verifier forgets bounds where the upper half is cut off. */
static __always_inline __u32 trie_block(const void *data, const volatile struct prefix_trie *t, __u64 number,
					       __u64 low)
{
	const __u32 *block;
	__u64 run, at, end;
	__u32 step;

	keep(number);
	if (number >= t->blocks_len)
		return 0;
	block = data + t->blocks + number * 16;
	run = block[0];
	if (!(run & PREFIX_MANY_RUNS)) {
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

		keep(next);
		if (next < t->runs_len && next < end &&
		    *(const __u32 *)(data + t->runs + next * 4) >> 16 <= low)
			at = next;
		forget(at, end);
	}
	keep(at);
	if (at >= t->runs_len)
		return 0;
	return *(const __u32 *)(data + t->runs + at * 4) & 0xffff;
}

/* The state of the /16 or /20 of that number. */
static __always_inline __u32 trie_state(const void *states, __u32 number)
{
	return *(const __u8 *)(states + (number >> 2)) >> (2 * (number & 3)) & 3;
}

/* The state of an address's /24, where that of its /20 says nothing: those of such /20 alone are kept, one word after the other. */
static __always_inline __u32 trie_deep(const void *data, const volatile struct prefix_trie *t, __u32 address)
{
	__u64 rank, before;

	/* Of the 16 /20 beside each other; none has its upper bit set but such ones. */
	before = *(const __u32 *)(data + t->states + PREFIX_FINE + (__u64)(address >> 16) * 4) >> 1 & 0x55555555;
	before &= (1ull << (2 * ((address >> 12) & 15))) - 1;
	rank = *(const __u32 *)(data + t->ranks + (__u64)(address >> 16) * 4) + count_ones(before);
	keep(rank);
	if (rank >= t->deep_len)
		return PREFIX_USUAL + 1;
	return *(const __u32 *)(data + t->deep + rank * 4) >> (2 * ((address >> 8) & 15)) & 3;
}

/* The class of 32 bits, in host order, where the states do not say. */
static __always_inline __u32 trie_further(const void *data, const volatile struct prefix_trie *t, __u32 address)
{
	__u32 bit = (address >> 8) & 63;
	__u64 top, word, rank, entry, turns;

	top = *(const __u64 *)(data + t->top + (__u64)(address >> 16) * 8);
	/* Without entries there are no bits either. */
	if (!(top & PREFIX_SPLIT) || !t->entries_len)
		return top & 0x7fff;
	word = *(const __u64 *)(data + t->bits + (__u64)(address >> 14) * 8);
	if (!((word >> bit) & 1))
		return top & 0x7fff;
	/* The entry's number: where those of the /16 begin, how many the words before have, and the bits before. */
	rank = (top >> 16) & 0xffffff;
	rank += (((top >> 32) & 0xffffff00) >> (8 * ((address >> 14) & 3))) & 0xff;
	rank += count_ones(word & ((1ull << bit) - 1));
	keep(rank);
	if (rank >= t->entries_len)
		return 0;
	entry = *(const __u32 *)(data + t->entries + rank * 4);
	if (entry & PREFIX_BLOCK)
		return trie_block(data, t, entry & ~PREFIX_BLOCK, address & 0xff);
	if (!(entry & PREFIX_ALTERNATE))
		return entry;
	/* One for each turn that does not begin behind the address: what is behind makes a difference that is not negative. */
	turns = entry >> 24;
	turns += (((entry & 0xff) - 1 - (address & 0xff)) >> 63) + (((entry >> 8 & 0xff) - 1 - (address & 0xff)) >> 63) +
		 (((entry >> 16 & 0xff) - 1 - (address & 0xff)) >> 63);
	return *(const __u16 *)(data + t->states) & -(turns & 1);
}

/* The class of 32 bits, in host order. The states are small enough for the caches, and say it for most addresses. No branch tells the two
 * usual ones apart: at random sources it would go wrong. */
static __always_inline __u32 trie_find(const void *data, const volatile struct prefix_trie *t, __u32 address)
{
	const void *states = data + t->states;
	__u32 state = PREFIX_USUAL + 1;

	if (!t->used)
		return 0;
	if (t->wide)
		state = trie_state(states + PREFIX_WIDE, address >> 16);
	if (state > PREFIX_USUAL)
		state = trie_state(states + PREFIX_FINE, address >> 12);
	if (state > PREFIX_USUAL)
		state = trie_deep(data, t, address);
	if (state > PREFIX_USUAL)
		return trie_further(data, t, address);
	return *(const __u16 *)states & -(__u64)state;
}

/* The class of a prefix of IPv6 plus 1, 0 if it is not in the table. */
static __always_inline __u32 prefix_v6_find(const void *data, const volatile struct prefix_table *p, __u64 high,
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
	for (probe = 0; probe < PREFIX_PROBES; probe++) {
		const struct prefix_slot *slot = data + p->slots + ((hash + probe) & p->slot_mask) * sizeof(*slot);

		if (!slot->len)
			return 0;
		if (slot->len == len && slot->high == high && slot->low == low)
			return slot->class + 1;
	}
	return 0;
}

/* The program's prefix_v6_find() in its table of that number: a function of its own, verified once, as the loop over lengths around it would
 * multiply its paths. */
typedef __u32 (*prefix_v6_probe)(__u32 which, __u64 high, __u64 low, __u32 len);

/* Longer prefixes of IPv6, the longest first; `number` is what the first 32 bits say. */
static __always_inline __u32 prefix_v6_long(const void *data, const volatile struct prefix_table *p, prefix_v6_probe probe,
					    __u32 which, const __u32 *address, __u32 number)
{
	const struct prefix_kind *kind;
	__u64 high, low;
	__u32 i;

	if (number >= p->kinds_len)
		return 0;
	kind = data + p->kinds + (__u64)number * sizeof(*kind);
	if (!kind->list)
		return kind->class;
	high = (__u64)bpf_ntohl(address[0]) << 32 | bpf_ntohl(address[1]);
	low = (__u64)bpf_ntohl(address[2]) << 32 | bpf_ntohl(address[3]);
	for (i = 0; i < PREFIX_LENGTHS; i++) {
		__u64 at = (__u64)kind->list + i;
		__u32 len, class;

		keep(at);
		if (at >= p->lengths_len)
			break;
		len = *(const __u8 *)(data + p->lengths + at);
		if (len == PREFIX_LIST_END)
			break;
		class = probe(which, high, low, len);
		if (class)
			return class - 1;
	}
	return kind->class;
}

static __always_inline __u32 prefix_class(const void *data, const volatile struct prefix_table *p, prefix_v6_probe probe,
					  __u32 which, __u8 family, const __u32 *address)
{
	__u32 class = 0;

	if (family == 4)
		class = trie_find(data, &p->v4, low_bits(bpf_ntohl(address[0]), 0xffffffff));
	else if (p->v6.used)
		class = prefix_v6_long(data, p, probe, which, address,
				       trie_find(data, &p->v6, low_bits(bpf_ntohl(address[0]), 0xffffffff)));
	forget(class, address[0]);
	return class;
}

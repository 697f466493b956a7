/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which SYNs need no look at the kernel's sockets. The kernel looks for a connection first, in a table that a flood from random
 * sources never finds in a cache, and then for the listener, which is always the same.
 *
 * A bit by the hash of addresses and ports says that there may be such a connection: user space sets those of the connections that are
 * there when rules begin to challenge (bpf::filter::Connected), this program those that it sees from then on. And whether a port is listened to is
 * asked again only when the clock has ticked.
 */
#pragma once

#include "lib/parse.h"

/* A power of two: 128 KB. */
#define CONNECTED_BITS (1 << 20)
/* Ports that are remembered to be listened to, per CPU. A power of two. */
#define CONNECTED_LISTENERS 16

struct connected_bits {
	__u64 word[CONNECTED_BITS / 64];
	/* Written by user space: all connections that there are have their bits. If not, each SYN is looked up. */
	__u64 complete;
	/* Likewise: cookie_key, for programs that come. */
	__u64 key[2];
	/* Likewise: host mode answers no SYN, the kernel does. Rules of netfilter have come that must see it, and the program for them is on its way. */
	__u64 withheld;
	__u64 pad[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct connected_bits);
} cookie_connected SEC(".maps");

/* A destination that was listened to at that time, in jiffies. */
struct connected_listener {
	__u64 key;
	__u64 jiffies;
};

/* A connection that has been let in, and when. TCP hears of it when its ACK comes out of the backlog; what comes behind in the same poll
 * must not be taken for a wrong cookie meanwhile. */
struct connected_fresh {
	/* Of addresses, ports and what the client acknowledges: as long as it has heard of nothing else, always the same. */
	__u64 hash;
	/* Of the ACK that let it in, in host order. */
	__u32 seq;
	__u32 jiffies;
};

/* Per CPU, a power of two: a poll is of 64 frames. */
#define CONNECTED_FRESH 64
/* Those of one CPU. */
struct connected_recent {
	/* When the last one was let in, in jiffies. */
	__u64 last;
	struct connected_fresh slot[CONNECTED_FRESH];
};

/* Many polls: longer ones are of a softirq that was held up. */
#define CONNECTED_FRESH_JIFFIES 8
/* Bytes: a client sends ten segments before it hears of the first. */
#define CONNECTED_FRESH_BYTES (1 << 17)

static __always_inline __u64 connected_mix(__u64 value)
{
	value *= 0x9e3779b97f4a7c15ULL;
	return value ^ value >> 32;
}

/* Of an address as on the wire. */
static __always_inline __u64 connected_address(__u8 family, const __u32 *address)
{
	if (family == 4)
		return address[0];
	return connected_mix((__u64)address[1] << 32 | address[0]) ^ ((__u64)address[3] << 32 | address[2]);
}

/* Of addresses and ports. */
static __always_inline __u64 connected_hash(const struct packet *p)
{
	__u64 hash = connected_mix(connected_address(p->family, p->source));

	hash = connected_mix(hash ^ connected_address(p->family, p->destination));
	return connected_mix(hash ^ ((__u64)p->source_port << 16 | p->destination_port));
}

/* The bit of a connection, the same for both families as in bpf::filter::Connected. */
static __always_inline __u32 connected_bit(const struct packet *p)
{
	return connected_hash(p) >> 44;
}

/* Whether there may be such a connection. */
static __always_inline bool connected_may(const struct packet *p)
{
	__u32 zero = 0, bit = connected_bit(p) & (CONNECTED_BITS - 1);
	struct connected_bits *bits = bpf_map_lookup_elem(&cookie_connected, &zero);

	return !bits || !bits->complete || bits->word[bit / 64] >> (bit % 64) & 1;
}

/* Whether answers are withheld: SYNs pass. */
static __always_inline bool connected_withheld(void)
{
	__u32 zero = 0;
	struct connected_bits *bits = bpf_map_lookup_elem(&cookie_connected, &zero);

	return bits && bits->withheld;
}

/* There is one. */
static __always_inline void connected_note(const struct packet *p)
{
	__u32 zero = 0, bit = connected_bit(p) & (CONNECTED_BITS - 1);
	struct connected_bits *bits = bpf_map_lookup_elem(&cookie_connected, &zero);

	if (bits && !(bits->word[bit / 64] >> (bit % 64) & 1))
		__sync_fetch_and_or(&bits->word[bit / 64], 1ULL << (bit % 64));
}

/* The connection is let in with these numbers, both in host order. */
static __always_inline void connected_begins(struct connected_recent *recent, const struct packet *p, __u32 seq, __u32 ack)
{
	__u64 hash = connected_mix(connected_hash(p) ^ ack);
	struct connected_fresh *slot = &recent->slot[hash >> 32 & (CONNECTED_FRESH - 1)];

	slot->hash = hash;
	slot->seq = seq;
	slot->jiffies = bpf_jiffies64();
	recent->last = bpf_jiffies64();
}

/* Whether any connection has been let in of late. */
static __always_inline bool connected_lately(const struct connected_recent *recent)
{
	return bpf_jiffies64() - recent->last < CONNECTED_FRESH_JIFFIES;
}

/* Whether this comes behind the ACK of a connection that has just been let in. */
static __always_inline bool connected_began(struct connected_recent *recent, const struct packet *p, __u32 seq, __u32 ack)
{
	struct connected_fresh *slot;
	__u64 hash;

	if (!connected_lately(recent))
		return false;
	hash = connected_mix(connected_hash(p) ^ ack);
	slot = &recent->slot[hash >> 32 & (CONNECTED_FRESH - 1)];
	return slot->hash == hash && (__u32)bpf_jiffies64() - slot->jiffies < CONNECTED_FRESH_JIFFIES &&
	       seq - slot->seq < CONNECTED_FRESH_BYTES;
}

/* What names a destination among those that are remembered. Never 0. */
static __always_inline __u64 connected_key(const struct packet *p)
{
	return connected_address(p->family, p->destination) << 17 ^ ((__u64)p->destination_port << 1 | 1);
}

static __always_inline struct connected_listener *connected_slot(struct connected_listener *listeners, __u64 key)
{
	return &listeners[connected_mix(key) >> 60 & (CONNECTED_LISTENERS - 1)];
}

/* Whether the destination was listened to in this tick of the clock. */
static __always_inline bool connected_listens(struct connected_listener *listeners, const struct packet *p)
{
	__u64 key = connected_key(p);
	struct connected_listener *slot = connected_slot(listeners, key);

	return slot->key == key && slot->jiffies == bpf_jiffies64();
}

static __always_inline void connected_listening(struct connected_listener *listeners, const struct packet *p)
{
	__u64 key = connected_key(p);
	struct connected_listener *slot = connected_slot(listeners, key);

	slot->key = key;
	slot->jiffies = bpf_jiffies64();
}

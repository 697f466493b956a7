/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds a protocol's frames, and checks the sum over one. */
#pragma once

#include "lib/cursor.h"

/* This node's address; user space writes it at once, as the first six bytes of a word. */
union link_address {
	__u64 word;
	__u8 bytes[8];
};

struct link_own {
	union link_address address;
} link_own SEC(".data.link") = {};

struct link_tag {
	__be16 id;
	__be16 ethertype;
};

/* Bytes that are summed up at a time: kernels before 6.13 take no more at once. */
#define LINK_SUM_MOST 512

struct link_piece {
	__u8 bytes[LINK_SUM_MOST];
};

/* A piece of a frame that lies in several buffers. */
PER_CPU(struct link_piece, link_pieces);

/* True if the frame has the protocol's EtherType behind one tag at the most, and is to this node or a group. */
static __always_inline bool link_find(struct xdp_md *ctx, struct link_frame *f, bool *elsewhere)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	union link_address to = {};
	struct link_tag *tag;
	struct ethhdr *eth;
	__be16 ethertype;

	eth = cursor_take(&c, sizeof(*eth));
	if (!eth)
		return false;
	/* struct ethhdr is packed: its members would be loaded byte by byte. */
	ethertype = ((__be16 *)eth)[6];
	f->vlan = LINK_UNTAGGED;
	f->at = sizeof(*eth);
	if (ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD)) {
		tag = cursor_take(&c, sizeof(*tag));
		if (!tag)
			return false;
		ethertype = tag->ethertype;
		/* Number 0 is a priority alone. */
		if (tag->id & bpf_htons(0xfff))
			f->vlan = bpf_ntohs(tag->id) & 0xfff;
		f->at += sizeof(*tag);
	}
	if (ethertype != bpf_htons(LINK_ETHERTYPE))
		return false;
	*(__u32 *)to.bytes = *(__u32 *)eth;
	*(__u16 *)(to.bytes + 4) = ((__u16 *)eth)[2];
	f->is_group = to.bytes[0] & 1;
	*elsewhere = !f->is_group && to.word != *(volatile __u64 *)&link_own.address.word;
	*(__u16 *)f->source = ((__u16 *)eth)[3];
	*(__u16 *)(f->source + 2) = ((__u16 *)eth)[4];
	*(__u16 *)(f->source + 4) = ((__u16 *)eth)[5];
	f->left = bpf_xdp_get_buff_len(ctx) - f->at;
	return true;
}

/* A header out of the first buffer, or of several. */
static __always_inline bool link_read(struct xdp_md *ctx, __u32 at, LINK_HEADER *h)
{
	void *from = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;

	if (from + sizeof(*h) <= end) {
		__builtin_memcpy(h, from, sizeof(*h));
		return true;
	}
	return !bpf_xdp_load_bytes(ctx, at, h, sizeof(*h));
}

static __always_inline __u16 link_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Adds a constant number of bytes at a place of the first buffer. The place is a number that the verifier knows no more of than its bounds: all
 * ways to it are one. */
#define LINK_SUM_HERE(n)                                                          \
	do {                                                                      \
		void *from = data + low_bits(at, 0x3fff);                         \
                                                                                  \
		if (from + (n) > end)                                             \
			return LINK_NO_SUM;                                       \
		sum = bpf_csum_diff(0, 0, from, n, sum);                          \
		at += (n);                                                        \
	} while (0)

/* The same by words: for few of them the helper's call costs more. The sum is not folded. */
#define LINK_SUM_WORDS(n)                                                         \
	do {                                                                      \
		__u32 *from = data + low_bits(at, 0x3fff);                        \
                                                                                  \
		if ((void *)from + (n) > end)                                     \
			return LINK_NO_SUM;                                       \
		_Pragma("unroll") for (i = 0; i < (n) / 4; i++)                   \
			sum += from[i];                                           \
		at += (n);                                                        \
	} while (0)

/* Of a sum: it could not be made. No sum has 17 bits. */
#define LINK_NO_SUM 0x10000

/* The last one to three bytes, and zeros. */
static __always_inline __u64 link_sum_tail(struct xdp_md *ctx, __u32 at, __u32 bytes, __u64 sum)
{
	__u8 tail[4] = {};

	if (bytes & 2) {
		if (bpf_xdp_load_bytes(ctx, at, tail, 2))
			return LINK_NO_SUM;
		if ((bytes & 1) && bpf_xdp_load_bytes(ctx, at + 2, tail + 2, 1))
			return LINK_NO_SUM;
	} else if ((bytes & 1) && bpf_xdp_load_bytes(ctx, at, tail, 1)) {
		return LINK_NO_SUM;
	}
	return sum + bpf_csum_diff(0, 0, (void *)tail, sizeof(tail), 0);
}

/* The Internet sum (RFC 1071) over `bytes` of a frame that lie in its first buffer; LINK_NO_SUM if they do not. A global function: verified once,
 * by itself. */
__noinline __u32 link_sum_first(struct xdp_md *ctx, __u32 at, __u32 bytes)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < LINK_FRAME_MAX / LINK_SUM_MOST && bytes >= LINK_SUM_MOST; i++) {
		LINK_SUM_HERE(LINK_SUM_MOST);
		bytes -= LINK_SUM_MOST;
	}
	if (bytes & 256)
		LINK_SUM_HERE(256);
	if (bytes & 128)
		LINK_SUM_WORDS(128);
	if (bytes & 64)
		LINK_SUM_WORDS(64);
	if (bytes & 32)
		LINK_SUM_WORDS(32);
	if (bytes & 16)
		LINK_SUM_WORDS(16);
	if (bytes & 8)
		LINK_SUM_WORDS(8);
	if (bytes & 4)
		LINK_SUM_WORDS(4);
	if (bytes & 3)
		sum = link_sum_tail(ctx, at, bytes, sum);
	return link_fold(sum);
}

/* The same over several buffers. */
__noinline __u32 link_sum_all(struct xdp_md *ctx, __u32 at, __u32 bytes)
{
	__u32 zero = 0, i, piece;
	struct link_piece *scratch = bpf_map_lookup_elem(&link_pieces, &zero);
	__u64 sum = 0;

	if (!scratch)
		return LINK_NO_SUM;
	for (i = 0; i <= LINK_FRAME_MAX / LINK_SUM_MOST && bytes >= 4; i++) {
		piece = bytes < LINK_SUM_MOST ? bytes & (LINK_SUM_MOST - 4) : LINK_SUM_MOST;
		piece = low_bits(piece, 2 * LINK_SUM_MOST - 1);
		if (piece < 4 || piece > LINK_SUM_MOST || bpf_xdp_load_bytes(ctx, at, scratch, piece))
			return LINK_NO_SUM;
		sum = bpf_csum_diff(0, 0, (void *)scratch, piece, sum);
		at += piece;
		bytes -= piece;
	}
	if (bytes & 3)
		sum = link_sum_tail(ctx, at, bytes, sum);
	return link_fold(sum);
}

/* True if the Internet sum over header and payload, its own field among them, is right. */
static __always_inline bool link_is_whole(struct xdp_md *ctx, const struct link_frame *f)
{
	__u32 sum = link_sum_first(ctx, f->at, f->bytes);

	if (sum == LINK_NO_SUM)
		sum = link_sum_all(ctx, f->at, f->bytes);
	return sum == 0xffff;
}

/* What a field with an Internet checksum becomes when a word beside it does. */
static __always_inline __u16 link_mend(__u16 checksum, __u16 before, __u16 now)
{
	return ~link_fold((__u64)(__u16)~checksum + (__u16)~before + now);
}

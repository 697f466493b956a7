/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Copies a frame into a ring, or turns it round. */
#pragma once

/* Beside enum xdp_action: not this program's. */
#define LINK_GOES_ON (-1)

/* The next protocol in the same place. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} link_next SEC(".maps");

static __always_inline void link_head(struct link_record *head, const struct link_frame *f, __u32 bytes)
{
	__builtin_memcpy(head->source, f->source, sizeof(head->source));
	head->vlan = f->vlan;
	head->bytes = bytes;
	head->pad = 0;
}

/* Bytes of a ring that a record of `n` bytes has for its frame: the kernel's header is 8 bytes. */
#define LINK_ROOM(n) ((n) - 8 - sizeof(struct link_record))

/* A small frame of which the first buffer has `n` bytes: copied in one piece of constant length, what follows the frame with it. That is cheaper
 * than the helper's call. */
#define LINK_TRY_SMALL(n)                                                              \
	keep(bytes);                                                                   \
	if (bytes <= (n) && from + (n) <= end) {                                       \
		rec = bpf_ringbuf_reserve(ring, 128 - 8, 0);                           \
		if (!rec)                                                              \
			return false;                                                  \
		__builtin_memcpy(rec + 1, from, n);                                    \
		goto copied;                                                           \
	}

/* A record of `n` bytes of the ring, if the frame is no longer. Sizes are constants: a reservation of the very size (a dynptr) is dearer. */
#define LINK_TRY(n)                                                                    \
	keep(bytes);                                                                   \
	if (bytes <= LINK_ROOM(n)) {                                                   \
		rec = bpf_ringbuf_reserve(ring, (n) - 8, 0);                           \
		if (!rec)                                                              \
			return false;                                                  \
		if (bpf_xdp_load_bytes(ctx, f->at, rec + 1, bytes)) {                  \
			bpf_ringbuf_discard(rec, 0);                                   \
			return false;                                                  \
		}                                                                      \
		goto copied;                                                           \
	}

/* Copies the frame into the ring; false: there is no room. */
static __always_inline bool link_put(struct xdp_md *ctx, void *ring, struct link_ring_state *state, const struct link_frame *f)
{
	struct link_record *rec;
	void *from = (void *)(long)ctx->data + f->at, *end = (void *)(long)ctx->data_end;
	__u64 bytes = f->bytes;

	/* No header is that short, as the compiler knows and the verifier does not. That of Linux 6.1 learns no least size from a comparison with 0, and
	 * takes no size that may be 0. */
	keep(bytes);
	if (bytes < 4)
		return false;
	LINK_TRY_SMALL(32)
	LINK_TRY_SMALL(96)
	LINK_TRY(128)
	LINK_TRY(256)
	LINK_TRY(512)
	LINK_TRY(1024)
	LINK_TRY(1536)
	LINK_TRY(2560)
	LINK_TRY(4608)
	LINK_TRY(LINK_FRAME_MAX + 24)
	return false;
copied:
	link_head(rec, f, bytes);
	bpf_ringbuf_submit(rec, link_wakeup_flag(state));
	return true;
}

static __always_inline int link_deliver(struct xdp_md *ctx, struct link_count *count, const struct link_frame *f, __u32 endpoint)
{
	struct link_ring_state *state;
	void *ring = link_ring_at(endpoint, &state);

	if (!ring) {
		count->no_endpoint++;
		return LINK_GOES_ON;
	}
	if (link_put(ctx, ring, state, f)) {
		count->delivered++;
	} else {
		link_count_full(state);
		count->full++;
	}
	return XDP_DROP;
}

/* Sends the frame back with another header. A header that is not in the first buffer is left to the stack. */
static __always_inline int link_answer(struct xdp_md *ctx, struct link_count *count, const struct link_frame *f, const LINK_HEADER *h)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *at = apart(data, f->at);
	__u16 *eth = data;

	if (at + sizeof(*h) > end || data + sizeof(struct ethhdr) > end || f->is_group || (f->source[0] & 1)) {
		count->passed++;
		return LINK_GOES_ON;
	}
	__builtin_memcpy(at, h, sizeof(*h));
	/* It was to this node: its own address is the one that it was sent to. */
	eth[3] = eth[0];
	eth[4] = eth[1];
	eth[5] = eth[2];
	__builtin_memcpy(eth, f->source, sizeof(f->source));
	count->answered++;
	return XDP_TX;
}

/* The whole way of a frame: a verdict, or LINK_GOES_ON. */
static __always_inline int link_run(struct xdp_md *ctx)
{
	struct link_frame f = {};
	struct link_count *count;
	bool elsewhere = false;
	__u32 zero = 0, end;
	LINK_HEADER h;

	if (!link_find(ctx, &f, &elsewhere))
		return LINK_GOES_ON;
	count = bpf_map_lookup_elem(&link_counts, &zero);
	if (!count)
		return LINK_GOES_ON;
	if (elsewhere) {
		count->elsewhere++;
		return LINK_GOES_ON;
	}
	if (f.left < sizeof(h) || !link_read(ctx, f.at, &h)) {
		count->too_short++;
		return XDP_DROP;
	}
	end = link_validate(&f, &h);
	if (end == LINK_DELIVER) {
		if (f.bytes > f.left || f.bytes < sizeof(h))
			end = LINK_SHORT;
		else if (f.bytes > LINK_FRAME_MAX)
			end = LINK_LONG;
		else
			end = link_handle(ctx, &f, &h);
	}
	switch (end) {
	case LINK_DELIVER:
		return link_deliver(ctx, count, &f, link_endpoint(&h) & (LINK_ENDPOINTS - 1));
	case LINK_ANSWER:
		return link_answer(ctx, count, &f, &h);
	case LINK_PASS:
		count->passed++;
		return LINK_GOES_ON;
	case LINK_SHORT:
		count->too_short++;
		return XDP_DROP;
	case LINK_LONG:
		count->too_long++;
		return XDP_DROP;
	case LINK_CHECKSUM:
		count->checksum++;
		return XDP_DROP;
	}
	end -= LINK_REASON;
	if (end < LINK_REASONS)
		count->reasons[end]++;
	return XDP_DROP;
}

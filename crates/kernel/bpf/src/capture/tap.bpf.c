/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Copies each frame into a ring of its CPU that user space has mapped, then hands it on to the places behind in the chain, or ends it.
 *
 * One writer per ring: an XDP program runs in softirq context (or with softirqs off), which does not nest on a CPU. One reader. No socket
 * buffer, no system call, no lock; per frame the program writes the frame's bytes and one cache line of control.
 */
#include "lib/common.h"

#include "capture/tap.h"
#include "chain/place.h"

/* How many bytes of a frame are kept, 1 to TAP_SNAPLEN_MAX. */
const volatile __u32 snaplen = 65535;
/* Segments per CPU minus one; their number is a power of two. */
const volatile __u32 segment_mask = 0;
/* Rings. A CPU beyond them came online after this program was loaded; control block number `rings` counts what it loses. */
const volatile __u32 rings = 1;
/* Take the time once per NAPI poll instead of for each frame: it is the dearest part of keeping a small frame. */
const volatile __u32 stamp_per_poll = 0;
/* A captured frame ends here instead of going on. */
const volatile bool consume = false;
/* Enum chain_place: before the filter or behind it. */
const volatile __u32 tap_place = CHAIN_BEFORE;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs x segments, set at load time */
	__type(key, __u32);
	__type(value, struct tap_segment);
} tap_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs and one more, set at load time */
	__type(key, __u32);
	__type(value, struct tap_control);
} tap_control SEC(".maps");

/* Makes the record visible before the position that covers it. */
static __always_inline void publish(struct tap_control *ctl, __u64 head)
{
#if defined(__TARGET_ARCH_x86)
	/* Stores are seen in their order; only the compiler must be held. */
	asm volatile("" ::: "memory");
	*(volatile __u64 *)&ctl->head = head;
#else
	/* A fetching atomic is a full barrier. */
	__sync_fetch_and_add(&ctl->head, head - ctl->head);
#endif
}

/* More frames than any NAPI poll has: whoever hands them over does not poll. */
#define NO_POLL 4096

/* The time of the frame: that of its NAPI poll, or its own. A driver that does not poll is found out by the number of its frames,
 * and until then the time is right to a tick. */
static __always_inline __u64 stamp(struct tap_control *ctl)
{
	__u64 now;

	if (!stamp_per_poll)
		return bpf_ktime_get_tai_ns();
	now = bpf_jiffies64();
	if (ctl->stamp_ns && ctl->stamp_jiffies == now && ++ctl->since_poll < NO_POLL)
		return ctl->stamp_ns;
	ctl->stamp_jiffies = now;
	ctl->stamp_ns = bpf_ktime_get_tai_ns();
	return ctl->stamp_ns;
}

/* Runs when a NAPI poll has ended, whosever it is. */
SEC("raw_tp/napi_poll")
int tap_poll_end(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct tap_control *ctl = bpf_map_lookup_elem(&tap_control, &cpu);

	if (ctl) {
		ctl->stamp_ns = 0;
		ctl->since_poll = 0;
	}
	return 0;
}

/* A frame that this program can neither keep nor hide. */
static __noinline void without_ring(void)
{
	__u32 spare = rings;
	struct tap_control *ctl = bpf_map_lookup_elem(&tap_control, &spare);

	if (ctl)
		__sync_fetch_and_add(&ctl->lost, 1);
}

/* The longest record whose bytes are copied by words. Beyond it the helper's one call is cheaper than the loop. */
#define TAP_WORDS_MAX 256

/* Copies `len` bytes, 8 to TAP_WORDS_MAX, by words: for a small frame the helper's call costs more than the bytes. False: the frame's
 * first bytes are not in one piece. The last word overlaps the one before, so that nothing beyond the frame is read. */
static __always_inline bool copy_words(struct xdp_md *ctx, struct tap_record *rec, __u32 len)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 off, last = (len - sizeof(__u64)) & (TAP_WORDS_MAX - 1);
	__u8 *to = (void *)(rec + 1), *from = apart(data, last);

	if ((void *)(from + sizeof(__u64)) > data_end)
		return false;
	*(__u64 *)(to + last) = *(__u64 *)from;
	for (off = 0; off < TAP_WORDS_MAX; off += 4 * sizeof(__u64)) {
		__u64 *source = data + off, *target = (void *)(to + off);

		if (off + 4 * sizeof(__u64) > len)
			break;
		if ((void *)(source + 4) > data_end)
			return false;
		target[0] = source[0];
		target[1] = source[1];
		target[2] = source[2];
		target[3] = source[3];
	}
	for (; off < last; off += sizeof(__u64)) {
		__u32 word = off & (TAP_WORDS_MAX - 1);
		__u8 *source = data + word;

		if ((void *)(source + sizeof(__u64)) > data_end)
			return false;
		*(__u64 *)(to + word) = *(__u64 *)source;
	}
	return true;
}

/* Keeps a copy of the frame, if there is room. */
static __always_inline void record(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct tap_control *ctl = bpf_map_lookup_elem(&tap_control, &cpu);
	struct tap_segment *segment;
	struct tap_record *rec;
	__u64 head, next, wire, end;
	__u32 len, index, off;
	struct chain_cpu *line = chain_cpu_of(&chain_state, cpu);

	if (cpu >= rings) {
		line->ask = 0;
		without_ring();
		return;
	}
	if (!ctl)
		return; /* the map has a block for each ring */
	wire = bpf_xdp_get_buff_len(ctx);
	len = wire < snaplen ? wire : snaplen;
	/* The verifier wants to see 1 <= len <= TAP_SNAPLEN_MAX. */
	len = ((len - 1) & (TAP_SNAPLEN_MAX - 1)) + 1;

	head = ctl->head;
	next = head + ((sizeof(*rec) + len + TAP_RECORD_ALIGN - 1) & ~(__u64)(TAP_RECORD_ALIGN - 1));
	end = (head | (TAP_SEGMENT_BYTES - 1)) + 1;
	if (next >= end)
		next = end;
	/* The segment in which the next record begins must be free: the slack of this one is then free too. */
	if (next - ctl->seen_tail > (__u64)segment_mask << TAP_SEGMENT_BITS) {
		ctl->seen_tail = *(volatile __u64 *)&ctl->tail;
		if (next - ctl->seen_tail > (__u64)segment_mask << TAP_SEGMENT_BITS)
			goto lost;
	}

	index = cpu * (segment_mask + 1) + ((__u32)(head >> TAP_SEGMENT_BITS) & segment_mask);
	segment = bpf_map_lookup_elem(&tap_ring, &index);
	if (!segment)
		goto lost;
	off = head & (TAP_SEGMENT_BYTES - 1);
	rec = (void *)segment + off;
	if ((len < sizeof(__u64) || len > TAP_WORDS_MAX || !copy_words(ctx, rec, len)) &&
	    bpf_xdp_load_bytes(ctx, 0, rec + 1, len))
		goto lost;
	rec->tai_ns = stamp(ctl);
	rec->wire_len = wire;
	rec->kept = len;
	rec->lost = ctl->lost;
	ctl->records++;
	if (!chain_on || consume) {
		rec->verdict = 0;
		publish(ctl, next);
	} else if (tap_place == CHAIN_BEFORE) {
		/* Whoever sees the new head sees that its frame has no verdict yet. */
		rec->verdict = line->verdict;
		line->verdict = 0;
		publish(ctl, next);
		line->ask = 1;
	} else {
		rec->verdict = line->passed;
		line->passed = 0;
		publish(ctl, next);
	}
	return;
lost:
	ctl->lost++;
	if (tap_place == CHAIN_BEFORE)
		line->ask = 0;
}

SEC("xdp.frags")
int tap(struct xdp_md *ctx)
{
	record(ctx);
	if (consume)
		return XDP_DROP;
	chain_go_on(ctx, tap_place);
	return XDP_PASS;
}

/* A frame before the filter that the capture does not want: nobody is to be told its verdict. */
SEC("xdp.frags")
int tap_skip(struct xdp_md *ctx)
{
	chain_cpu_of(&chain_state, bpf_get_smp_processor_id())->ask = 0;
	chain_go_on(ctx, tap_place);
	return XDP_PASS;
}

/* A frame that has been sent to another interface already. */
SEC("xdp.frags")
int tap_cross(struct xdp_md *ctx)
{
	record(ctx);
	return consume ? XDP_DROP : XDP_REDIRECT;
}

char _license[] SEC("license") = "Dual BSD/GPL";

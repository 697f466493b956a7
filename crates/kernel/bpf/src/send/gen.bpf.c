/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The live-frame generator: run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, once per frame.
 *
 * Every run either writes the next packet's headers into the frame and redirects it to the device, or, while nothing is
 * due, drops it: such a filler is how the program waits without holding soft interrupts off. User space lays down the
 * headers of all packets of a cycle in a table, checksums included, so that nothing here knows a protocol; only the TCP
 * sequence number is made up per packet, and, where asked for, the source; the checksums follow (RFC 1624). The headers are
 * written whole each time, because a frame comes back from its receiver with whatever that did to it.
 *
 * One object is loaded per sender: all state is private to one core, and every knob is a constant to the verifier. */
#include <stdbool.h>

#include "lib/pace.h"

/* The most packets between two looks at the clock: a sender that has too little of its core still ends when its time is over. */
#define GEN_GRANT 64

/* Length of the headers in bytes, 8 or more. */
const volatile __u64 gen_header_len = 54;
/* Distance of the entries in the table, in bytes, a multiple of 8; the frame's length is in the last 4 of them. */
const volatile __u64 gen_stride = 64;
/* Length of all entries together in bytes, and the next power of two at or above it, less one. */
const volatile __u64 gen_table_len = 64;
const volatile __u64 gen_table_mask = 63;
/* Offset of the TCP header in bytes, 0 when the packets have none. */
const volatile __u64 gen_tcp_offset = 34;
/* Length in bytes of the frames that the test run hands in, and whether the table asks for shorter ones. */
const volatile __u32 gen_frame_max = 60;
const volatile bool gen_sizes_vary = false;
/* Packets per nanosecond, times 2^PACE_RATE_SHIFT; 0 is as fast as it goes. */
const volatile __u64 gen_rate = 0;
/* Packets to send. */
const volatile __u64 gen_count = ~0ULL;
/* How long to send, in nanoseconds from the first run on. */
const volatile __u64 gen_duration_ns = 1000000000;
/* Sources drawn anew for each packet: where the last 32 bits of the source address are (0: as in the table), which of their bits are
 * drawn (network order), where the source port is, the transport checksum, and that of the IPv4 header (0: none). */
const volatile __u64 gen_random_at = 0;
const volatile __u32 gen_random_mask = 0;
const volatile __u64 gen_port_at = 0;
const volatile __u64 gen_checksum_at = 0;
const volatile __u64 gen_ip_checksum_at = 0;

/* Written by the program and read by user space while it runs; only `stop` goes the other way. */
struct gen_state {
	/* Packets sent, and at which count the clock is due. */
	__u64 sent;
	__u64 limit;
	/* Where the next entry begins in the table. */
	__u64 offset;
	/* Runs that sent nothing because nothing was due. */
	__u64 fillers;
	/* Part of a packet that is due, times 2^PACE_RATE_SHIFT; packets due that did not go yet; what the last look let go. */
	__u64 credit;
	__u64 pending;
	__u64 granted;
	/* Time behind schedule that was given up because it went beyond PACE_LAG_MAX_NS, or was left at the end. */
	__u64 given_up_ns;
	/* CLOCK_MONOTONIC of the first run, of the last look at the clock. */
	__u64 started_ns;
	__u64 seen_ns;
	__u32 stop;
	__u32 done;
	/* What sources are drawn from. */
	__u64 random;
};

struct gen_state gen_state;

/* The entries, resized by user space to gen_table_mask + 1 + gen_stride bytes. */
__u8 gen_table[64] SEC(".data.gen_table") = {};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gen_device SEC(".maps");

/* How much of the schedule `packets` are, in nanoseconds; they are fewer than 2^24. */
static __always_inline __u64 schedule_ns(__u64 packets)
{
	return gen_rate ? (packets << PACE_RATE_SHIFT) / gen_rate : 0;
}

/* The time is over: what was due until then and did not go is given up. */
static __always_inline void give_up_rest(struct gen_state *s, __u64 before, __u64 left)
{
	__u64 rest = gen_duration_ns - (before - s->started_ns);

	if (!gen_rate)
		return;
	s->pending += pace_due(rest, gen_rate, PACE_LAG_MAX_NS, &s->credit, &s->given_up_ns);
	if (s->pending > left)
		s->pending = left;
	s->given_up_ns += schedule_ns(s->pending);
	s->pending = 0;
	/* Nothing went since the last look: it was on time, however late this one is. */
	if (!s->granted)
		s->seen_ns = s->started_ns + gen_duration_ns;
}

/* Looks at the clock and at the stop flag; says whether a packet may go, and sets when to look next. */
static __noinline int refill(struct gen_state *s)
{
	__u64 now, before, left, lag_max, due = GEN_GRANT;

	if (!s || s->done)
		return 0;
	now = bpf_ktime_get_ns();
	if (!s->started_ns) {
		s->started_ns = now;
		s->seen_ns = now;
		/* The first packet is due at once. */
		s->credit = 1ULL << PACE_RATE_SHIFT;
	}
	left = gen_count - s->sent;
	before = s->seen_ns;
	s->seen_ns = now;
	if (!left || *(volatile __u32 *)&s->stop) {
		s->done = 1;
		return 0;
	}
	if (now - s->started_ns >= gen_duration_ns) {
		give_up_rest(s, before, left);
		s->done = 1;
		return 0;
	}
	if (gen_rate) {
		s->pending += pace_due(now - before, gen_rate, PACE_LAG_MAX_NS, &s->credit, &s->given_up_ns);
		if (due > s->pending)
			due = s->pending;
		s->pending -= due;
		lag_max = PACE_LAG_MAX_NS * gen_rate >> PACE_RATE_SHIFT;
		if (s->pending > lag_max) {
			s->given_up_ns += schedule_ns(s->pending - lag_max);
			s->pending = lag_max;
		}
	}
	if (due > left)
		due = left;
	s->granted = due;
	s->limit = s->sent + due;
	return due != 0;
}

/* A checksum after `sum`, of the words that came and the complements of those that went (RFC 1624, equation 3). */
static __always_inline __u16 checksum_after(__u16 old, __u64 sum)
{
	sum += (__u16)~old;
	sum = (sum >> 16) + (__u16)sum;
	sum = (sum >> 16) + (__u16)sum;
	return (__u16)~sum;
}

/* Draws another source address and port. A UDP checksum of 0 means none (RFC 768), and 0xffff is the same number. */
static __always_inline bool draw_source(struct gen_state *s, void *data, void *end)
{
	__u64 state = s->random, sum;
	__u32 old, new;
	__u16 old_port, port, check;

	if (data + gen_random_at + 4 > end || data + gen_port_at + 2 > end || data + gen_checksum_at + 2 > end ||
	    data + gen_ip_checksum_at + 2 > end)
		return false;
	/* Knuth's linear congruential generator: its high bits are the good ones. */
	s->random = state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	old = *(__u32 *)(data + gen_random_at);
	new = (old & ~gen_random_mask) | ((__u32)(state >> 32) & gen_random_mask);
	*(__u32 *)(data + gen_random_at) = new;
	sum = (__u64)(__u16)~old + (__u16)~(old >> 16) + (__u16)new + (new >> 16);
	if (gen_ip_checksum_at) {
		check = *(__u16 *)(data + gen_ip_checksum_at);
		*(__u16 *)(data + gen_ip_checksum_at) = checksum_after(check, sum);
	}
	/* 1024 to 65535. */
	port = bpf_htons(1024 + (((state >> 16) & 0xffff) * 64512 >> 16));
	old_port = *(__u16 *)(data + gen_port_at);
	*(__u16 *)(data + gen_port_at) = port;
	check = *(__u16 *)(data + gen_checksum_at);
	check = checksum_after(check, sum + (__u16)~old_port + port);
	*(__u16 *)(data + gen_checksum_at) = check || gen_tcp_offset ? check : 0xffff;
	return true;
}

SEC("xdp")
int ek_gen(struct xdp_md *ctx)
{
	struct gen_state *s = &gen_state;
	__u64 len = gen_header_len, offset, sent;
	void *data, *end, *from;

	if (s->sent == s->limit && !refill(s)) {
		s->fillers++;
		return XDP_DROP;
	}
	offset = s->offset;
	from = gen_table + (offset & gen_table_mask);
	sent = s->sent;
	s->sent = sent + 1;
	offset += gen_stride;
	if (offset == gen_table_len)
		offset = 0;
	s->offset = offset;
	if (gen_sizes_vary) {
		__u32 frame_len = *(__u32 *)(from + gen_stride - 4);

		if (frame_len != gen_frame_max && bpf_xdp_adjust_tail(ctx, (int)(frame_len - gen_frame_max)))
			return XDP_ABORTED;
	}
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (len < 8 || len > PACE_HEADER_MAX || data + len > end)
		return XDP_ABORTED;
	pace_write_headers(data, from, len);
	if (gen_tcp_offset) {
		__u64 tcp = gen_tcp_offset;
		/* Where the table has zeros, so that the checksum loses just these bits (RFC 1624, equation 4). */
		__u64 low = (__u16)sent;
		__u64 sum = *(__u16 *)(from + tcp + 16) + (low ^ 0xffff);

		if (data + tcp + 18 > end)
			return XDP_ABORTED;
		*(__u16 *)(data + tcp + 6) = low;
		*(__u16 *)(data + tcp + 16) = sum + (sum >> 16);
	}
	if (gen_random_at && !draw_source(s, data, end))
		return XDP_ABORTED;
	return bpf_redirect_map(&gen_device, 0, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

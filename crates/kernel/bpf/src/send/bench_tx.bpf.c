/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The sender of the bench: run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, once per frame, as send/gen.bpf.c is.
 *
 * The table holds the headers of every frame of a lap, for both directions, checksums included. Per frame only the signature
 * (send/bench_sig.h), the identification and the checksums over them are made up (RFC 1624). Per unit there is no state but the
 * number of laps: `seq = lap * seq_step + seq_base`.
 *
 * The clock is read once per look. A look lets some units go: those up to the next one that is to bear a stamp, so that a stamp is the time of
 * its own unit. Where all are stamped, some units share the time of one look. */
#include <stdbool.h>
#include <stddef.h>

#include "send/bench_sig.h"
#include "lib/pace.h"

#define BENCH_STEPS 4
/* Ethernet, IPv4 without options, UDP, signature. */
#define BENCH_PLAIN_LEN (14 + 20 + 8 + 18)
/* A rate that is as fast as it goes; 0 is nothing. */
#define BENCH_UNPACED (~0ULL)

/* What a frame of the table has before its headers. */
struct bench_tx_entry {
	/* Number of the unit within its flow: of the first lap, and how much more in each later one. */
	__u32 seq_base;
	__u32 seq_step;
	/* Length of the frame in memory, without FCS. */
	__u16 frame_len;
	/* 0 forward, 1 backward. */
	__u8 direction;
	/* Offsets from the start of the frame: the signature; the transport checksum, the IPv4 identification and that of an IPv6
	 * fragment header, each 0 if the frame has none. */
	__u8 signature_at;
	__u8 checksum_at;
	/* How many signatures the checksum covers: the fragments of the datagram. */
	__u8 checksum_times;
	__u8 id_at;
	__u8 id6_at;
	/* Another frame of the same unit follows. */
	__u8 more;
	__u8 pad[7];
};

/* Length of the headers in bytes, 8 or more; distance of the entries, a multiple of 8; all entries together, of which the probe's is
 * not one: it lies behind them. */
const volatile __u64 bench_header_len = 60;
const volatile __u64 bench_stride = 88;
const volatile __u64 bench_table_len = 88;
/* Length in bytes of the frames that the test run hands in; whether some are shorter; whether some units have several frames. */
const volatile __u32 bench_frame_max = 60;
const volatile bool bench_sizes_vary = false;
const volatile bool bench_fragments = false;
/* The offsets of signature and transport checksum, if they are the same in all entries, the checksum covers one signature, and there is no
 * identification to vary; else 0. */
const volatile __u64 bench_signature_at = 0;
const volatile __u64 bench_checksum_at = 0;
/* One entry, sent over and over: its laps are the units. */
const volatile bool bench_single = false;

/* From this time between two looks on, the stamps of the units in between are late. */
const volatile __u64 bench_late_ns = 50000;

struct bench_tx_step {
	/* As lib/pace.h has it; 0; BENCH_UNPACED. */
	__u64 rate;
	/* Time between two units; units that may be due at once before time is given up. */
	__u64 unit_ns;
	__u64 pending_max;
	__u64 duration_ns;
};

/* Written by the program and read by user space; from `stop` on the other way round. Zeroed by user space between two trials. */
struct bench_tx_state {
	/* Units begun, and at which count the next look is due. */
	__u64 sent;
	__u64 limit;
	/* Where the next entry begins, and in which lap, unless there is only one entry: so user space knows how many units of each
	 * direction were begun. */
	__u64 offset;
	__u64 lap;
	/* What the last look gave the first of its units and the others for a stamp. */
	__u64 first_ns;
	__u64 others_ns;
	/* Of units of several frames: the present one's stamp, and whether it goes on. */
	__u64 stamp_ns;
	__u64 more;
	/* Units until the next stamped one. */
	__u64 unstamped;
	__u64 probes;
	/* Looks at the clock, and those with nothing due. */
	__u64 turns;
	__u64 fillers;
	/* Part of a unit that is due, times 2^PACE_RATE_SHIFT; units due that did not go yet. */
	__u64 credit;
	__u64 pending;
	__u64 given_up_ns;
	/* The longest time behind schedule, and between two looks of which the first let units go: how old a stamp may be. */
	__u64 latest_ns;
	__u64 oldest_ns;
	/* Units that the last look let go, and those of all looks that were followed by one more than bench_late_ns later. */
	__u64 granted;
	__u64 late;
	/* CLOCK_MONOTONIC of the first look, the last one, the beginning of the present step, the next probe. */
	__u64 started_ns;
	__u64 seen_ns;
	__u64 step_ns;
	__u64 probe_ns;
	__u32 step;
	__u32 done;
	__u32 stop;
	__u32 steps;
	/* The trial's tag, its lowest bit 0. */
	__u32 tag;
	__u32 stamp_every;
	/* Units that one look may let go. */
	__u64 grant;
	__u64 count;
	__u64 probe_every_ns;
	__u64 probe_after_ns;
	struct bench_tx_step step_of[BENCH_STEPS];
};

struct bench_tx_state bench_tx_state;

/* The entries, each with its headers behind it, resized by user space to hold bench_table_len + bench_stride bytes. */
struct bench_tx_entry bench_tx_table[8] SEC(".data.bench_tx") = {};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} bench_tx_device SEC(".maps");

/* A receive ring of the box for each direction: a queue to one of its CPUs, whose kernel thread hands the frames to the port. It
 * stands for the descriptors of a network card; a veth alone has 256, which overflow whenever its CPU is taken away for a moment. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} bench_tx_ring0 SEC(".maps"), bench_tx_ring1 SEC(".maps");

const volatile bool bench_rings = false;
const volatile __u32 bench_ring_cpu0 = 0;
const volatile __u32 bench_ring_cpu1 = 0;

enum { WAIT, UNIT, PROBE };

static __always_inline void begin(struct bench_tx_state *s, __u64 now)
{
	s->step_ns = now;
	s->pending = 0;
	/* Half a unit: so the number of units of a step is its rate times its time, rounded. */
	s->credit = 1ULL << (PACE_RATE_SHIFT - 1);
}

/* Looks at the clock and at the stop flag; says what may go, and how many units before the next look. */
static __noinline int look(struct bench_tx_state *s)
{
	struct bench_tx_step *step;
	__u64 now, passed, due, left;

	if (!s || s->done)
		return WAIT;
	now = bpf_ktime_get_ns();
	s->turns++;
	if (!s->started_ns) {
		s->started_ns = s->seen_ns = now;
		s->probe_ns = now + s->probe_after_ns;
		begin(s, now);
	}
	passed = now - s->seen_ns;
	s->seen_ns = now;
	if (s->granted && s->oldest_ns < passed)
		s->oldest_ns = passed;
	if (passed > bench_late_ns)
		s->late += s->granted;
	s->granted = 0;
	left = s->count - s->sent;
	if (!left || *(volatile __u32 *)&s->stop) {
		s->done = 1;
		return WAIT;
	}
	step = &s->step_of[s->step % BENCH_STEPS];
	if (now - s->step_ns >= step->duration_ns) {
		if (s->step + 1 >= s->steps) {
			s->done = 1;
			return WAIT;
		}
		s->step++;
		step = &s->step_of[s->step % BENCH_STEPS];
		begin(s, now);
		passed = 0;
	}
	due = s->grant;
	if (step->rate != BENCH_UNPACED) {
		s->pending += pace_due(passed, step->rate, PACE_LAG_MAX_NS, &s->credit, &s->given_up_ns);
		if (s->pending) {
			__u64 lag = (s->pending - 1) * step->unit_ns + ((s->credit >> 20) * step->unit_ns >> 20);

			if (lag > s->latest_ns)
				s->latest_ns = lag;
		}
		if (s->pending > step->pending_max) {
			s->given_up_ns += (s->pending - step->pending_max) * step->unit_ns;
			s->pending = step->pending_max;
		}
		if (due > s->pending)
			due = s->pending;
	}
	if (s->probe_every_ns && now >= s->probe_ns) {
		s->probe_ns += s->probe_every_ns;
		if (s->probe_ns <= now)
			s->probe_ns = now + s->probe_every_ns;
		return PROBE;
	}
	if (due > left)
		due = left;
	if (!due) {
		s->fillers++;
		return WAIT;
	}
	if (s->stamp_every == 1) {
		s->first_ns = s->others_ns = now;
	} else {
		s->first_ns = 0;
		if (!s->unstamped) {
			s->first_ns = now;
			s->unstamped = s->stamp_every;
		}
		if (due > s->unstamped)
			due = s->unstamped;
		s->unstamped -= due;
	}
	if (step->rate != BENCH_UNPACED)
		s->pending -= due;
	s->granted = due;
	s->limit = s->sent + due;
	return UNIT;
}

/* The checksum of `sum`, in one's complement, which has no more than 48 bits. */
static __always_inline __u16 checksum(__u64 sum)
{
	sum = (sum >> 32) + (__u32)sum;
	sum = (sum >> 16) + (__u16)sum;
	sum = (sum >> 16) + (__u16)sum;
	sum = (__u16)~(sum + (sum >> 16));
	/* In UDP 0 says that there is none (RFC 768). */
	return sum ? sum : 0xffff;
}

/* The flow is in the table, and so are zeros where no stamp is. */
static __always_inline void sign(void *at, __u16 tag, __u32 seq, __u64 stamp)
{
	*(__u16 *)(at + offsetof(struct bench_sig, tag)) = tag;
	*(__u32 *)(at + offsetof(struct bench_sig, seq)) = seq;
	if (stamp)
		*(__u64 *)(at + offsetof(struct bench_sig, stamp_ns)) = stamp;
}

/* One frame. `plain`: all entries are of Ethernet, IPv4 without options, UDP and a signature, of one length and whole, which the compiler then
 * knows: the verifier takes out the branches that a knob rules out, but neither its reading nor what a branch would have needed. */
static __always_inline int send(struct xdp_md *ctx, const bool plain)
{
	struct bench_tx_state *s = &bench_tx_state;
	const __u64 len = plain ? BENCH_PLAIN_LEN : bench_header_len;
	const __u64 stride = plain ? sizeof(struct bench_tx_entry) + (BENCH_PLAIN_LEN + 7) / 8 * 8 : bench_stride;
	const __u64 signature_at = plain ? BENCH_PLAIN_LEN - sizeof(struct bench_sig) : bench_signature_at;
	const __u64 checksum_at = plain ? signature_at - 2 : bench_checksum_at;
	const bool fragments = !plain && bench_fragments;
	__u64 offset, stamp, number, sum;
	struct bench_tx_entry *e = bench_tx_table;
	void *data, *end, *at;
	__u32 tag, seq, way;

	number = s->sent;
	if (fragments && s->more) {
		stamp = s->stamp_ns;
	} else {
		stamp = s->others_ns;
		if (number == s->limit) {
			switch (look(s)) {
			case UNIT:
				stamp = s->first_ns;
				break;
			case PROBE:
				e = (void *)bench_tx_table + bench_table_len;
				stamp = s->seen_ns;
				number = seq = s->probes++;
				goto write;
			default:
				return XDP_DROP;
			}
		}
		s->sent = ++number;
	}
	if (bench_single) {
		seq = (__u32)(number - 1) * e->seq_step + e->seq_base;
	} else {
		offset = s->offset;
		if (offset >= bench_table_len) {
			offset = 0;
			s->lap++;
		}
		s->offset = offset + stride;
		e = (void *)bench_tx_table + offset;
		seq = (__u32)s->lap * e->seq_step + e->seq_base;
	}
	if (fragments) {
		s->stamp_ns = stamp;
		s->more = e->more;
	}
write:
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (len < 8 || len > PACE_HEADER_MAX || data + len > end)
		return XDP_ABORTED;
	pace_write_headers(data, e + 1, len);
	way = e->direction & 1;
	tag = s->tag | way;
	sum = (__u64)tag + seq;
	if (stamp)
		sum += (stamp >> 32) + (__u32)stamp;
	if (signature_at) {
		sign(data + signature_at, tag, seq, stamp);
		if (checksum_at) {
			/* Out of the table: the frame would be read while it is being written. */
			at = (void *)(e + 1) + checksum_at;
			*(__u16 *)(data + checksum_at) = checksum(sum + (__u16)~*(__u16 *)at);
		}
	} else {
		at = data + e->signature_at;
		if (at + sizeof(struct bench_sig) > end)
			return XDP_ABORTED;
		sign(at, tag, seq, stamp);
		if (e->checksum_at) {
			at = data + e->checksum_at;
			if (at + 2 > end)
				return XDP_ABORTED;
			*(__u16 *)at = checksum(sum * e->checksum_times + (__u16)~*(__u16 *)at);
		}
		if (e->id_at) {
			at = data + e->id_at;
			if (at + 8 > end)
				return XDP_ABORTED;
			*(__u16 *)at = number;
			/* The header's checksum lies six bytes further. */
			*(__u16 *)(at + 6) = checksum((__u16)~*(__u16 *)(at + 6) + (__u16)number);
		}
		if (e->id6_at) {
			at = data + e->id6_at;
			if (at + 4 > end)
				return XDP_ABORTED;
			*(__u32 *)at = number;
		}
	}
	/* Last, as no pointer into the frame outlives it; each run begins with a frame of full length. */
	if (!plain && bench_sizes_vary && e->frame_len != bench_frame_max && bpf_xdp_adjust_tail(ctx, (int)e->frame_len - (int)bench_frame_max))
		return XDP_ABORTED;
	if (bench_rings && way)
		return bpf_redirect_map(&bench_tx_ring1, bench_ring_cpu1, 0);
	if (bench_rings)
		return bpf_redirect_map(&bench_tx_ring0, bench_ring_cpu0, 0);
	return bpf_redirect_map(&bench_tx_device, way, 0);
}

SEC("xdp")
int ek_bench_tx(struct xdp_md *ctx)
{
	return send(ctx, false);
}

SEC("xdp")
int ek_bench_plain(struct xdp_md *ctx)
{
	return send(ctx, true);
}

/* Behind the rings, on the box's CPUs. */
SEC("xdp/cpumap")
int ek_bench_ring0(struct xdp_md *ctx)
{
	return bpf_redirect_map(&bench_tx_device, 0, 0);
}

SEC("xdp/cpumap")
int ek_bench_ring1(struct xdp_md *ctx)
{
	return bpf_redirect_map(&bench_tx_device, 1, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

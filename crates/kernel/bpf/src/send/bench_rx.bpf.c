/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The bench's receiver: tells apart what came, came twice, came late and never came, and how long it took.
 *
 * What bears the tag of this port's direction is counted and ended here; a probe goes back to where it came from. All else, such as the
 * box's neighbour discovery, passes to the stack. A flow's state is the sequence number that comes next and which of the 64 before
 * it came; it is reached by one CPU at a time as long as the port keeps a flow on one queue. The clock is read for stamped
 * units, for probes, and for gaps where asked. */
#include <stdbool.h>
#include <stddef.h>

#include "lib/cursor.h"
#include "send/bench_sig.h"

/* Buckets of a delay: 64 for each power of two of nanoseconds, up to the longest. */
#define BENCH_SUB_BITS 6
#define BENCH_LONGEST_BITS 34
#define BENCH_BUCKETS ((BENCH_LONGEST_BITS - BENCH_SUB_BITS + 1) << BENCH_SUB_BITS)
#define BENCH_ROUND_TRIPS 1024
/* Datagrams of one flow whose fragments may come in between each other. */
#define BENCH_SLOTS 4

#define MORE_FRAGMENTS 0x2000
#define FRAGMENT_OFFSET 0x1fff
/* Ethernet, IPv4 without options, UDP. */
#define PLAIN_LEN (14 + 20 + 8)
/* Next header of an IPv6 fragment header (RFC 8200, section 4.5). */
#define IPV6_FRAGMENT 44

/* Flows that the trial sends into this port, numbered from 0. */
const volatile __u32 bench_flow_count = 1;
/* Fragments of a unit, 1 to 64, and a bit for each. */
const volatile __u32 bench_fragment_count = 1;
const volatile __u64 bench_all_fragments = 1;
/* Send probes back, to this address and from this one. */
const volatile bool bench_echo = false;
const volatile __u8 bench_echo_to[ETH_ALEN] = {};
const volatile __u8 bench_echo_from[ETH_ALEN] = {};
/* Every unit is stamped: keep the longest time between two arrivals. */
const volatile bool bench_silence = false;
/* Keep when a gap in a sequence was found last. */
const volatile bool bench_gap_times = false;

/* What user space sets before each trial, and what all CPUs share. */
struct bench_shared {
	/* The tag of units that are to arrive here, and that of the trial before (none is above 16 bits). */
	__u32 tag;
	__u32 before;
	/* The number of the trial: older states of flows do not count. */
	__u32 epoch;
	__u32 reserved;
	/* Time of the last arrival (0 before the first), and the longest time between two; only with bench_silence. */
	__u64 last_ns;
	__u64 longest_silence_ns;
	/* Round trips of the first probes, by sequence number; 0 has not come back. */
	__u64 round_trips[BENCH_ROUND_TRIPS];
};

struct bench_shared bench_shared;

/* Counts of one CPU. */
struct bench_count {
	/* Frames of datagrams that may come in several (of others they are the sum of what became of them); different units, of datagrams those
	 * that came whole. */
	__u64 frames;
	__u64 units;
	__u64 duplicated;
	__u64 reordered;
	__u64 stale;
	/* Datagrams of which a fragment came. */
	__u64 begun;
	__u64 looped;
	__u64 stray;
	/* Frames of the trial before, of either direction. */
	__u64 leftover;
	__u64 probes_returned;
	__u64 probes_echoed;
	/* The clock when a gap was found last. */
	__u64 gap_ns;
	/* The last delay, and the interarrival jitter (RFC 3550, A.8) times 16. */
	__u64 delay_ns;
	__u64 jitter;
};

struct bench_histogram {
	__u64 samples;
	__u64 sum_ns;
	__u64 min_ns;
	__u64 max_ns;
	__u64 buckets[BENCH_BUCKETS];
};

/* A flow: the number that comes next, and which of those before it came, the latest in the lowest bit. */
struct bench_flow {
	__u64 seen;
	__u32 next;
	__u32 epoch;
};

/* A datagram: which of its fragments came. */
struct bench_datagram {
	__u64 came;
	__u32 seq;
	__u32 epoch;
};

PER_CPU(struct bench_count, bench_counts);

PER_CPU(struct bench_histogram, bench_delays);
PER_CPU(struct bench_histogram, bench_ipdv);

/* Resized by user space to bench_flow_count + 1; the last is that of the probes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct bench_flow);
} bench_flows SEC(".maps");

/* Resized by user space to BENCH_SLOTS for each flow where units are fragmented. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_datagram);
} bench_parts SEC(".maps");

/* What became of a unit. */
enum arrival { FRESH, LATE, AGAIN, STALE, AFTER_A_GAP };

/* Which bucket: the number of halvings until less than two times 64 is left, and what is left. */
static __noinline int record(struct bench_histogram *h, __u64 ns)
{
	__u64 left = ns, bucket = 0;

	if (!h)
		return 0;
	if (left >> BENCH_LONGEST_BITS)
		left = (1ULL << BENCH_LONGEST_BITS) - 1;
#pragma unroll
	for (int step = 16; step; step >>= 1) {
		if (left >> (BENCH_SUB_BITS + step)) {
			left >>= step;
			bucket += step << BENCH_SUB_BITS;
		}
	}
	bucket += left;
	if (bucket < BENCH_BUCKETS)
		h->buckets[bucket]++;
	if (!h->samples || ns < h->min_ns)
		h->min_ns = ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	h->samples++;
	h->sum_ns += ns;
	return 0;
}

/* A stamped unit has come for the first time. */
static __noinline int measure(struct bench_count *count, __u64 stamp_ns)
{
	__u64 now = bpf_ktime_get_ns(), delay = now > stamp_ns ? now - stamp_ns : 0, differs;
	__u32 zero = 0;
	struct bench_histogram *delays = bpf_map_lookup_elem(&bench_delays, &zero);
	struct bench_histogram *ipdv = bpf_map_lookup_elem(&bench_ipdv, &zero);

	if (!count || !delays || !ipdv)
		return 0;
	if (delays->samples) {
		differs = delay > count->delay_ns ? delay - count->delay_ns : count->delay_ns - delay;
		record(ipdv, differs);
		count->jitter += differs - ((count->jitter + 8) >> 4);
	}
	count->delay_ns = delay;
	record(delays, delay);
	if (bench_silence) {
		if (bench_shared.last_ns && now > bench_shared.last_ns + bench_shared.longest_silence_ns)
			bench_shared.longest_silence_ns = now - bench_shared.last_ns;
		bench_shared.last_ns = now;
	}
	return 0;
}

/* A unit that is not the next one of its flow. */
static __noinline enum arrival out_of_turn(struct bench_flow *flow, __u32 seq, __u32 epoch)
{
	__s32 ahead;
	__u64 bit;

	if (!flow)
		return STALE;
	if (flow->epoch != epoch) {
		flow->epoch = epoch;
		flow->next = 0;
		/* There is nothing before the first. */
		flow->seen = ~0ULL;
	}
	ahead = (__s32)(seq - flow->next);
	if (ahead >= 0) {
		flow->seen = ahead >= 63 ? 1 : flow->seen << (ahead + 1) | 1;
		flow->next = seq + 1;
		return ahead ? AFTER_A_GAP : FRESH;
	}
	if (ahead < -64)
		return STALE;
	bit = 1ULL << (-ahead - 1);
	if (flow->seen & bit)
		return AGAIN;
	flow->seen |= bit;
	return LATE;
}

static __always_inline enum arrival arrive(struct bench_flow *flow, __u32 seq, __u32 epoch)
{
	if (flow->next != seq || flow->epoch != epoch)
		return out_of_turn(flow, seq, epoch);
	flow->next = seq + 1;
	flow->seen = flow->seen << 1 | 1;
	return FRESH;
}

/* A fragment: whether its datagram is whole now. */
static __noinline int complete(struct bench_count *count, __u32 flow, __u32 seq, __u64 bit)
{
	__u32 key = flow * BENCH_SLOTS + seq % BENCH_SLOTS, epoch = bench_shared.epoch;
	struct bench_datagram *datagram = bpf_map_lookup_elem(&bench_parts, &key);

	if (!count || !datagram)
		return 0;
	if (datagram->epoch != epoch || (__s32)(seq - datagram->seq) > 0) {
		datagram->epoch = epoch;
		datagram->seq = seq;
		datagram->came = 0;
		count->begun++;
	}
	/* Counted by their first fragment. */
	if (datagram->seq != seq) {
		count->stale += bit & 1;
		return 0;
	}
	if (datagram->came & bit) {
		count->duplicated += bit & 1;
		return 0;
	}
	datagram->came |= bit;
	return datagram->came == bench_all_fragments;
}

/* Steps over the options of a header of `words` words, of which the first `taken` are behind the cursor. */
static __always_inline bool skip_options(struct cursor *c, __u32 words, __u32 taken)
{
	/* The compiler knows better than the verifier, and would leave the bound out. */
	asm volatile("" : "+r"(words));
	return cursor_take(c, (words - taken) * 4 & 63);
}

/* Sends a probe back: addresses and ports swapped, which leaves all checksums right. By redirection, as the sender's frames go: what a veth
 * is told to send by XDP_TX stays in its peer's ring, unseen, while the peer has no XDP program (drivers/net/veth.c, veth_xdp_flush). */
static __noinline int send_back(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct ethhdr *eth = cursor_take(&c, sizeof(*eth));
	__u8 *ip = cursor_take(&c, 20);
	__u32 *address, *ports, word;
	int i;

	if (!eth || !ip)
		return XDP_DROP;
#pragma unroll
	for (i = 0; i < ETH_ALEN; i++) {
		eth->h_dest[i] = bench_echo_to[i];
		eth->h_source[i] = bench_echo_from[i];
	}
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		address = (__u32 *)(ip + 12);
		word = address[0];
		address[0] = address[1];
		address[1] = word;
		if (!skip_options(&c, ip[0] & 15, 5))
			return XDP_DROP;
	} else {
		address = (__u32 *)(ip + 8);
		if (!cursor_take(&c, 20))
			return XDP_DROP;
#pragma unroll
		for (i = 0; i < 4; i++) {
			word = address[i];
			address[i] = address[i + 4];
			address[i + 4] = word;
		}
	}
	ports = cursor_take(&c, 4);
	if (!ports)
		return XDP_DROP;
	*ports = *ports << 16 | *ports >> 16;
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* A probe that came back, with its number and its stamp. */
static __noinline int take_back(struct bench_count *count, __u32 seq, __u64 stamp_ns)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 key = bench_flow_count;
	struct bench_flow *flow = bpf_map_lookup_elem(&bench_flows, &key);
	__u64 place = seq;
	enum arrival how;

	if (!count || !flow)
		return 0;
	how = arrive(flow, seq, bench_shared.epoch);
	if (how == AGAIN || how == STALE)
		return 0;
	count->probes_returned++;
	asm volatile("" : "+r"(place));
	if (place < BENCH_ROUND_TRIPS)
		bench_shared.round_trips[place] = now > stamp_ns ? now - stamp_ns : 1;
	return 0;
}

/* Where the signature of a frame is that has Ethernet, IPv4 without options and UDP, and is no fragment: nearly all of them; else NULL. */
static __always_inline void *locate_plain(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;

	if (data + PLAIN_LEN + sizeof(struct bench_sig) > (void *)(long)ctx->data_end)
		return 0;
	/* The type, and the first byte of the IP header. */
	if ((*(__u32 *)(data + 12) & bpf_htonl(0xffffff00)) != bpf_htonl(ETH_P_IP << 16 | 0x4500))
		return 0;
	/* Flags and offset of a fragment, and the protocol. */
	if ((*(__u32 *)(data + 20) & bpf_htonl((MORE_FRAGMENTS | FRAGMENT_OFFSET) << 16 | 0xff)) != bpf_htonl(IPPROTO_UDP))
		return 0;
	return data + PLAIN_LEN;
}

/* Where the signature of a frame would be, and a bit for the place of the frame in its unit; NULL when it can have none. */
static __always_inline void *locate(struct xdp_md *ctx, __u64 *bit)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	__u32 offset, len, more, place;
	struct ethhdr *eth = cursor_take(&c, sizeof(*eth));
	__u8 *ip, *next, protocol;

	if (!eth)
		return 0;
	ip = cursor_take(&c, 20);
	if (!ip)
		return 0;
	*bit = bench_all_fragments;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (ip[0] >> 4 != 4 || ip[0] < 0x45)
			return 0;
		if (ip[0] != 0x45 && !skip_options(&c, ip[0] & 15, 5))
			return 0;
		protocol = ip[9];
		offset = bpf_ntohs(*(__u16 *)(ip + 6));
		more = offset & MORE_FRAGMENTS;
		offset = (offset & FRAGMENT_OFFSET) * 8;
		len = bpf_ntohs(*(__u16 *)(ip + 2)) - (ip[0] & 15) * 4;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		if (!cursor_take(&c, 20))
			return 0;
		protocol = ip[6];
		offset = 0;
		more = 0;
		len = 0;
		if (protocol == IPV6_FRAGMENT) {
			next = cursor_take(&c, 8);
			if (!next)
				return 0;
			protocol = next[0];
			offset = bpf_ntohs(*(__u16 *)(next + 2));
			more = offset & 1;
			offset &= 0xfff8;
			len = bpf_ntohs(*(__u16 *)(ip + 4)) - 8;
		}
	} else {
		return 0;
	}
	if (offset || more) {
		/* All fragments but the last are of one length. */
		place = bench_fragment_count - 1;
		if (more)
			place = len ? offset / len : 64;
		if (bench_fragment_count == 1 || place >= bench_fragment_count)
			return 0;
		*bit = 1ULL << (place & 63);
	}
	if (!offset && protocol == IPPROTO_UDP) {
		if (!cursor_take(&c, 8))
			return 0;
	} else if (!offset && protocol == IPPROTO_TCP) {
		next = cursor_take(&c, 20);
		if (!next || next[12] < 0x50)
			return 0;
		if (next[12] >> 4 != 5 && !skip_options(&c, next[12] >> 4, 5))
			return 0;
	} else if (!offset || (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)) {
		return 0;
	}
	return cursor_take(&c, sizeof(struct bench_sig));
}

/* The fields are not aligned; the compiler would read the packed struct byte by byte. */
#define FIELD(type, name) (*(type *)(at + offsetof(struct bench_sig, name)))

SEC("xdp.frags")
int ek_bench_rx(struct xdp_md *ctx)
{
	__u32 zero = 0, key, seq;
	struct bench_count *count = bpf_map_lookup_elem(&bench_counts, &zero);
	struct bench_flow *flow;
	__u16 differs;
	__u64 bit = bench_all_fragments, stamp;
	void *at;

	if (!count)
		return XDP_PASS;
	at = locate_plain(ctx);
	if (!at)
		at = locate(ctx, &bit);
	if (!at)
		goto stray;
	key = FIELD(__u32, flow);
	seq = FIELD(__u32, seq);
	stamp = FIELD(__u64, stamp_ns);
	differs = FIELD(__u16, tag) ^ bench_shared.tag;
	if (differs) {
		if (differs != 1) {
			if ((FIELD(__u16, tag) ^ bench_shared.before) > 1)
				goto stray;
			count->leftover++;
			return XDP_DROP;
		}
		if (key == BENCH_PROBE)
			take_back(count, seq, stamp);
		else
			count->looped++;
		return XDP_DROP;
	}
	if (key >= bench_flow_count) {
		if (key != BENCH_PROBE)
			goto stray;
		if (!bench_echo)
			return XDP_DROP;
		count->probes_echoed++;
		return send_back(ctx);
	}
	if (bench_all_fragments != 1) {
		count->frames++;
		if (!complete(count, key, seq, bit))
			return XDP_DROP;
	}
	flow = bpf_map_lookup_elem(&bench_flows, &key);
	if (!flow)
		return XDP_DROP;
	switch (arrive(flow, seq, bench_shared.epoch)) {
	case AGAIN:
		count->duplicated++;
		return XDP_DROP;
	case STALE:
		count->stale++;
		return XDP_DROP;
	case LATE:
		count->reordered++;
		break;
	case AFTER_A_GAP:
		if (bench_gap_times)
			count->gap_ns = bpf_ktime_get_ns();
		break;
	case FRESH:
		break;
	}
	count->units++;
	if (stamp)
		measure(count, stamp);
	return XDP_DROP;
stray:
	count->stray++;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

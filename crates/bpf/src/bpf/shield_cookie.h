/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * TCP SYNs answered in place of the server, without any state per SYN.
 *
 * Host mode: a SYN to a listener is answered by a SYN-ACK whose sequence number is the kernel's own cookie. An ACK that belongs to no
 * connection must carry a right one; it is marked (struct shield_ack) and goes on to the program in shield_ack.bpf.c, which
 * makes the connection of it. What the client offered is in the low bits of the timestamp that it sends back.
 *
 * Gateway mode: the SYN of an unknown source is answered by a SYN-ACK that acknowledges a number which the client never sent: the
 * cookie of its addresses and ports. A client answers with a RST of just that number (RFC 9293, 3.10.7.3) and tries again; a
 * source that sent such a RST is known, and its packets pass.
 *
 * An answer is never longer than its question by more than the 4 bytes of the MSS option that every SYN-ACK has (a factor of 1.06 at
 * most, 1 for frames of least size), and there is at most one.
 *
 * What a client and an administrator notice:
 * - Host: a cookie lasts 2 minutes (the kernel's). A client whose ACK was lost, or found the listener's queue full, gets in with the data
 *   that it sends next. The listener has to be in the interface's network namespace: what is forwarded to another (containers behind NAT)
 *   must not be challenged here. Without timestamps only the MSS is kept, as with the kernel's cookies. Data in a SYN (TCP Fast Open) is
 *   not acknowledged, so that it comes again. Frames with two tags, and ACKs in fragments, make no connection this way. A SYN's checksum
 *   is not looked at. ACKs to a listener without a right cookie get no RST.
 * - Gateway: the first connection of a source takes two more packets and, with Linux clients, some 10 ms; clients of other systems try
 *   again after their retransmission time, a second or more, and so does Linux if a new minute began in between. A firewall before the
 *   client that drops what it thinks invalid keeps it out. Who can see a known source's address can spoof it.
 */
#pragma once

#include "shield.h"
#include "shield_ack.h"
#include "shield_connected.h"
#include "shield_cookie_reply.h"

enum shield_cookie_mode { SHIELD_COOKIE_OFF, SHIELD_COOKIE_HOST, SHIELD_COOKIE_GATEWAY };

/* enum shield_cookie_mode. */
const volatile __u32 cookie_mode = SHIELD_COOKIE_OFF;
/* The interface sends by bpf_redirect instead of XDP_TX: a veth, whose peer takes XDP_TX only while it runs an XDP program itself. */
const volatile bool cookie_by_redirect = false;
/* Host mode: the MAC address that packets for this host have; frames to others are left alone. Only if cookie_mac_known. */
const volatile __u8 cookie_mac[6] = {};
const volatile bool cookie_mac_known = false;
/* Host mode: TCP to ports without listener or connection is dropped instead of passed to the stack. */
const volatile bool cookie_drop_unlistened = false;
/* Host mode: timestamps are offered, and with them what follows. Needs shield_ack. */
const volatile bool cookie_timestamps = true;
/* The kernel's settings: net.ipv4.tcp_sack, tcp_window_scaling, tcp_ecn. */
const volatile bool cookie_sack = true;
const volatile bool cookie_scaling = true;
const volatile bool cookie_ecn = true;
/* The MSS that the SYN-ACK names, per family, and its window (not scaled) in bytes. */
const volatile __u16 cookie_mss_v4 = 1460;
const volatile __u16 cookie_mss_v6 = 1440;
const volatile __u16 cookie_window = 64240;
/* Shift of the windows that follow. */
const volatile __u8 cookie_wscale = 7;
/* Gateway mode: seconds that a source stays known after its last SYN. */
const volatile __u32 cookie_known_s = 600;
/* Gateway mode: packets other than SYNs of unknown sources are dropped instead of passed. */
const volatile bool cookie_strict = false;

/* What one CPU did. */
struct shield_cookie_count {
	/* SYNs answered: host mode with a cookie, gateway mode with a question. */
	__u64 answered;
	/* ACKs with a right cookie, and dropped ones. */
	__u64 right;
	__u64 wrong;
	/* Right, but the driver takes no mark (bpf_xdp_adjust_meta): dropped. */
	__u64 unmarked;
	/* To no connection and no listener. */
	__u64 unlistened;
	/* SYNs, SYN-ACKs, RSTs and so on that a listener would ignore: dropped. */
	__u64 odd;
	/* SYNs that could not be answered (the frame could not be resized, the helper failed): dropped. */
	__u64 failed;
	/* Gateway: sources that became known; SYNs of known sources; dropped packets of unknown ones. */
	__u64 proved;
	__u64 known;
	__u64 unknown;
};

/* What is worked with, here rather than on the stack: the caller's frame is large already. */
struct shield_cookie_work {
	struct shield_packet packet;
	struct shield_ack ack;
	struct shield_offer offer;
	struct shield_reply reply;
	/* What the kernel makes its cookie of. */
	union {
		struct iphdr ip;
		struct ipv6hdr ip6;
	};
	struct tcphdr tcp;
	__u8 mss_kind, mss_len;
	__be16 mss;
	struct bpf_sock_tuple tuple;
};

struct shield_cookie_cpu {
	struct shield_cookie_count count;
	struct connected_listener listeners[CONNECTED_LISTENERS];
	struct shield_cookie_work work;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shield_cookie_cpu);
} cookie_counts SEC(".maps");

/* Sources that have proved that they exist, with the second (coarse monotonic) of their last SYN. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} known_v4 SEC(".maps");

/* Likewise per /64. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} known_v6 SEC(".maps");

/* Always 0, which the verifier does not know: loops over options then have the same state in each round. */
__u32 cookie_zero;

/* An address that nobody may send from: multicast, none, loopback, IPv4's broadcast, IPv4 within IPv6. */
static __always_inline bool cookie_no_source(const struct shield_packet *p)
{
	__u8 first = p->source[0];

	if (p->family == 4)
		return (first & 0xf0) == 0xe0 || first == 127 || first == 0 || p->source[0] == 0xffffffff;
	if (first == 0xff)
		return true;
	return !p->source[0] && !p->source[1] && (p->source[2] == bpf_htonl(0xffff) || !p->source[2]);
}

static __always_inline int cookie_back(struct xdp_md *ctx)
{
	return cookie_by_redirect ? (int)bpf_redirect(ctx->ingress_ifindex, 0) : XDP_TX;
}

/* What the client's SYN offers. A global function: verified once, by itself. */
__noinline int cookie_options(struct xdp_md *ctx, struct shield_offer *offer, __u32 at, __u32 len)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 off = cookie_zero;
	int i;

	if (!offer)
		return 0;
	/* An option is one byte or more. */
	for (i = 0; i < 40; i++) {
		__u8 *o, kind, size;

		off &= 0x3f;
		if (off >= len)
			break;
		o = data + (at & SHIELD_AT_MASK) + off;
		if ((void *)(o + 1) > end)
			break;
		kind = o[0];
		if (kind == 0)
			break;
		if (kind == 1) {
			off += cookie_zero + 1;
			continue;
		}
		if ((void *)(o + 2) > end)
			break;
		size = o[1];
		if (size < 2 || off + size > len)
			break;
		if (kind == 2 && size == 4 && (void *)(o + 4) <= end) {
			offer->mss = (__u16)o[2] << 8 | o[3];
		} else if (kind == 3 && size == 3 && (void *)(o + 3) <= end) {
			offer->wscale = o[2] > 14 ? 14 : o[2];
		} else if (kind == 4 && size == 2) {
			offer->sack = 1;
		} else if (kind == 8 && size == 10 && (void *)(o + 10) <= end) {
			__builtin_memcpy(&offer->tsval, o + 2, 4);
			__builtin_memcpy(&offer->tsecr, o + 6, 4);
			offer->timestamps = 1;
		}
		off += size;
	}
	return 1;
}

/* The kernel's cookies are made of a packet from client to server; here it is. */
static __always_inline void cookie_addresses(struct shield_cookie_work *w, const struct shield_packet *p)
{
	if (p->family == 4) {
		w->ip.saddr = p->source[0];
		w->ip.daddr = p->destination[0];
	} else {
		__builtin_memcpy(&w->ip6.saddr, p->source, 16);
		__builtin_memcpy(&w->ip6.daddr, p->destination, 16);
	}
	w->tcp.source = bpf_htons(p->source_port);
	w->tcp.dest = bpf_htons(p->destination_port);
}

/* The kernel's cookie: in the low 32 bits the number, above it the MSS that it stands for. Negative when the kernel has no cookies. */
static __always_inline __s64 cookie_make(struct shield_cookie_work *w, const struct shield_packet *p, __be32 seq, __u16 mss)
{
	cookie_addresses(w, p);
	w->tcp.seq = seq;
	/* Its length in words, and the SYN bit. */
	((__be16 *)&w->tcp)[6] = bpf_htons(6 << 12 | TCP_SYN);
	w->mss_kind = 2;
	w->mss_len = 4;
	w->mss = bpf_htons(mss);
	if (p->family == 4)
		return bpf_tcp_raw_gen_syncookie_ipv4(&w->ip, &w->tcp, sizeof(w->tcp) + 4);
	return bpf_tcp_raw_gen_syncookie_ipv6(&w->ip6, &w->tcp, sizeof(w->tcp) + 4);
}

/* Whether `number` is a cookie of the last two minutes for the client's sequence number `seq`, its SYN's. Both in host order. */
static __always_inline bool cookie_is_right(struct shield_cookie_work *w, const struct shield_packet *p, __u32 seq, __u32 number)
{
	cookie_addresses(w, p);
	w->tcp.seq = bpf_htonl(seq + 1);
	w->tcp.ack_seq = bpf_htonl(number + 1);
	if (p->family == 4)
		return !bpf_tcp_raw_check_syncookie_ipv4(&w->ip, &w->tcp);
	return !bpf_tcp_raw_check_syncookie_ipv6(&w->ip6, &w->tcp);
}

/* The state of the socket that the packet is for: that of a connection if there is one, otherwise BPF_TCP_LISTEN; 0: none at all. */
static __always_inline int cookie_socket(struct xdp_md *ctx, struct shield_cookie_work *w, const struct shield_packet *p)
{
	struct bpf_sock_tuple *tuple = &w->tuple;
	struct bpf_sock *sk;
	int state;

	if (p->family == 4) {
		tuple->ipv4.saddr = p->source[0];
		tuple->ipv4.daddr = p->destination[0];
		tuple->ipv4.sport = bpf_htons(p->source_port);
		tuple->ipv4.dport = bpf_htons(p->destination_port);
		sk = bpf_skc_lookup_tcp(ctx, tuple, sizeof(tuple->ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(tuple->ipv6.saddr, p->source, 16);
		__builtin_memcpy(tuple->ipv6.daddr, p->destination, 16);
		tuple->ipv6.sport = bpf_htons(p->source_port);
		tuple->ipv6.dport = bpf_htons(p->destination_port);
		sk = bpf_skc_lookup_tcp(ctx, tuple, sizeof(tuple->ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return 0;
	state = sk->state;
	bpf_sk_release(sk);
	return state;
}

/* Answers a SYN with a cookie. */
static __always_inline int cookie_answer(struct xdp_md *ctx, struct shield_packet *p, struct shield_cookie_cpu *cpu,
					 __be32 seq, __u8 doff, __u8 flags)
{
	struct shield_offer *offer = &cpu->work.offer;
	struct shield_reply *reply = &cpu->work.reply;
	__s64 cookie;

	*offer = (struct shield_offer){ .wscale = SHIELD_NO_WSCALE };
	if (doff > 5 && !cookie_options(ctx, offer, p->transport_at + sizeof(struct tcphdr), (doff - 5) * 4))
		return XDP_DROP;
	cookie = cookie_make(&cpu->work, p, seq, offer->mss);
	if (cookie < 0) {
		cpu->count.failed++;
		return XDP_DROP;
	}
	reply->flags = TCP_SYN | TCP_ACK;
	reply->seq = bpf_htonl((__u32)cookie);
	reply->ack = bpf_htonl(bpf_ntohl(seq) + 1);
	reply->window = bpf_htons(cookie_window);
	reply->options = 4;
	reply->words[0] = bpf_htonl(0x02040000 | (p->family == 4 ? cookie_mss_v4 : cookie_mss_v6));
	if (cookie_timestamps && offer->timestamps) {
		bool sack = offer->sack && cookie_sack;
		bool scaling = offer->wscale != SHIELD_NO_WSCALE && cookie_scaling;
		bool ecn = cookie_ecn && (flags & (TCP_ECE | TCP_CWR)) == (TCP_ECE | TCP_CWR);
		__u32 stamp = scaling ? offer->wscale : SHIELD_NO_WSCALE;

		if (sack)
			stamp |= SHIELD_STAMP_SACK;
		if (ecn) {
			stamp |= SHIELD_STAMP_ECN;
			reply->flags |= TCP_ECE;
		}
		stamp |= shield_mss_number(offer->mss ?: (p->family == 4 ? 536 : 1220)) << SHIELD_STAMP_MSS_SHIFT;
		/* The kernel counts on from whatever comes back, so the high bits may be any that tell nothing. */
		stamp |= ((__u32)cookie ^ (__u32)cookie << 16) & ~SHIELD_STAMP_MASK;
		reply->words[1] = bpf_htonl(sack ? 0x0402080a : 0x0101080a);
		reply->words[2] = bpf_htonl(stamp);
		reply->words[3] = offer->tsval;
		reply->options = 16;
		if (scaling) {
			reply->words[4] = bpf_htonl(0x01030300 | cookie_wscale);
			reply->options = 20;
		}
	}
	if (!cookie_reply(ctx, p, reply)) {
		cpu->count.failed++;
		return XDP_DROP;
	}
	cpu->count.answered++;
	return cookie_back(ctx);
}

/* Finds out what MSS a right cookie stands for: its number in the kernel's table (0 to 3) is added to it, and only 0 to 3 is right. */
static __always_inline __u32 cookie_mss_of(struct shield_cookie_work *w, const struct shield_packet *p, __u32 seq, __u32 number)
{
	if (cookie_is_right(w, p, seq, number + 2))
		return cookie_is_right(w, p, seq, number + 3) ? 0 : 1;
	return cookie_is_right(w, p, seq, number + 1) ? 2 : 3;
}

/* Looks at a first ACK, which may bring data, and marks it for shield_ack. */
static __always_inline int cookie_finish(struct xdp_md *ctx, struct shield_packet *p, struct shield_cookie_cpu *cpu,
					 __be32 seq_be, __be32 ack_be, __u8 doff)
{
	__u32 seq = bpf_ntohl(seq_be) - 1, number = bpf_ntohl(ack_be) - 1;
	struct shield_cookie_work *w = &cpu->work;
	struct shield_offer *offer = &w->offer;
	struct shield_ack *ack = &w->ack, *mark;

	if (!cookie_is_right(w, p, seq, number)) {
		cpu->count.wrong++;
		return XDP_DROP;
	}
	ack->magic = SHIELD_ACK_MAGIC;
	ack->flags = 0;
	ack->tsval = 0;
	ack->tsecr = 0;
	ack->transport = p->transport_at - p->ip_at;
	ack->wscale = SHIELD_NO_WSCALE;
	*offer = (struct shield_offer){ .wscale = SHIELD_NO_WSCALE };
	if (doff > 5)
		cookie_options(ctx, offer, p->transport_at + sizeof(struct tcphdr), (doff - 5) * 4);
	if (cookie_timestamps && offer->timestamps) {
		__u32 stamp = bpf_ntohl(offer->tsecr);

		ack->tsval = bpf_ntohl(offer->tsval);
		ack->tsecr = stamp;
		ack->flags = SHIELD_ACK_TIMESTAMPS;
		if (stamp & SHIELD_STAMP_SACK)
			ack->flags |= SHIELD_ACK_SACK;
		if (stamp & SHIELD_STAMP_ECN)
			ack->flags |= SHIELD_ACK_ECN;
		ack->wscale = stamp & SHIELD_STAMP_WSCALE;
		ack->mss = shield_mss_of((stamp & SHIELD_STAMP_MSS) >> SHIELD_STAMP_MSS_SHIFT);
		/* No less than the kernel takes for the family. */
		if (p->family == 6 && ack->mss < 1220)
			ack->mss = 1220;
	} else {
		ack->mss = shield_kernel_mss(p->family, cookie_mss_of(w, p, seq, number));
	}
	ack->own_wscale = cookie_wscale;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*ack))) {
		cpu->count.unmarked++;
		return XDP_DROP;
	}
	mark = (void *)(long)ctx->data_meta;
	if ((void *)(mark + 1) > (void *)(long)ctx->data) {
		cpu->count.unmarked++;
		return XDP_DROP;
	}
	*mark = *ack;
	connected_note(p);
	cpu->count.right++;
	return -1;
}

static __always_inline int cookie_host(struct xdp_md *ctx, struct shield_packet *p, struct shield_cookie_cpu *cpu,
				       struct tcphdr *tcp)
{
	__be32 seq = tcp->seq, ack = tcp->ack_seq;
	__u8 doff = tcp->doff;
	__u8 flags = p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
	bool later;
	int state;

	if (cookie_no_source(p)) {
		cpu->count.odd++;
		return XDP_DROP;
	}
	if (flags != TCP_SYN || !connected_listens(cpu->listeners, p) || connected_may(p)) {
		state = cookie_socket(ctx, &cpu->work, p);
		if (!state) {
			cpu->count.unlistened++;
			return cookie_drop_unlistened ? XDP_DROP : -1;
		}
		if (state != BPF_TCP_LISTEN) {
			connected_note(p);
			return -1;
		}
		connected_listening(cpu->listeners, p);
	}
	later = p->fragment != SHIELD_WHOLE;
	switch (flags) {
	case TCP_SYN:
		return cookie_answer(ctx, p, cpu, seq, doff, p->flags);
	case TCP_ACK:
	case TCP_ACK | TCP_FIN:
		if (!later)
			return cookie_finish(ctx, p, cpu, seq, ack, doff);
	}
	cpu->count.odd++;
	return XDP_DROP;
}

static __always_inline __u32 cookie_now(void)
{
	return bpf_ktime_get_coarse_ns() >> 30;
}

static __always_inline __u32 *cookie_known(const struct shield_packet *p)
{
	if (p->family == 4) {
		__u32 key = p->source[0];

		return bpf_map_lookup_elem(&known_v4, &key);
	}
	__u64 key = (__u64)p->source[0] << 32 | p->source[1];

	return bpf_map_lookup_elem(&known_v6, &key);
}

static __always_inline void cookie_learn(const struct shield_packet *p, __u32 now)
{
	if (p->family == 4) {
		__u32 key = p->source[0];

		bpf_map_update_elem(&known_v4, &key, &now, BPF_ANY);
	} else {
		__u64 key = (__u64)p->source[0] << 32 | p->source[1];

		bpf_map_update_elem(&known_v6, &key, &now, BPF_ANY);
	}
}

static __always_inline int cookie_gateway(struct xdp_md *ctx, struct shield_packet *p, struct shield_cookie_cpu *cpu,
					  struct tcphdr *tcp)
{
	__u8 flags = p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
	__u32 now = cookie_now(), number, *seen, off;
	struct shield_reply *reply = &cpu->work.reply;
	__be32 seq = tcp->seq;
	__s64 cookie;

	seen = cookie_known(p);
	if (seen && now - *seen < cookie_known_s) {
		if (flags == TCP_SYN) {
			cpu->count.known++;
			if (*seen != now)
				*seen = now;
		}
		return -1;
	}
	if (cookie_no_source(p) || (flags & TCP_SYN && flags & (TCP_RST | TCP_FIN))) {
		cpu->count.odd++;
		return XDP_DROP;
	}
	if (flags != TCP_SYN && flags != TCP_RST) {
		if (!cookie_strict)
			return -1;
		cpu->count.unknown++;
		return XDP_DROP;
	}
	cookie = cookie_make(&cpu->work, p, 0, 536);
	if (cookie < 0) {
		cpu->count.failed++;
		return XDP_DROP;
	}
	number = cookie;
	if (flags == TCP_RST) {
		off = bpf_ntohl(seq) - number;
		if (off != 0 && off != 0x80000000) {
			if (!cookie_strict)
				return -1;
			cpu->count.unknown++;
			return XDP_DROP;
		}
		cookie_learn(p, now);
		cpu->count.proved++;
		return XDP_DROP;
	}
	/* Not one that the client could take for right, not even with data in its SYN. */
	if (number - bpf_ntohl(seq) - 1 < 0x10000)
		number += 0x80000000;
	reply->flags = TCP_SYN | TCP_ACK;
	reply->seq = seq;
	reply->ack = bpf_htonl(number);
	reply->options = 0;
	reply->window = bpf_htons(cookie_window);
	if (!cookie_reply(ctx, p, reply)) {
		cpu->count.failed++;
		return XDP_DROP;
	}
	cpu->count.answered++;
	return cookie_back(ctx);
}

/* A global function: verified once, by itself, and not for each way that leads to it. */
__noinline int shield_challenge_packet(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct shield_cookie_cpu *cpu;
	struct shield_packet *p;
	struct ethhdr *eth = data;
	struct tcphdr *tcp;
	__u32 zero = 0;

	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu)
		return XDP_ABORTED;
	p = &cpu->work.packet;
	if (p->protocol != IPPROTO_TCP || !p->has_flags)
		return -1;
	tcp = data + (p->transport_at & SHIELD_AT_MASK);
	if ((void *)(tcp + 1) > end || (void *)(eth + 1) > end)
		return -1;
	/* A group of hosts: TCP is not for them, and the stack ignores it. */
	if (eth->h_dest[0] & 1)
		return -1;
	if (cookie_mode == SHIELD_COOKIE_GATEWAY)
		return cookie_gateway(ctx, p, cpu, tcp);
	if (cookie_mac_known) {
		int i;

		for (i = 0; i < 6; i++)
			if (eth->h_dest[i] != cookie_mac[i])
				return -1;
	}
	/* Two tags: the stack's tc hook sees such a frame with one tag still on, where no connection can be made of it. */
	if (p->ip_at > sizeof(*eth) + 4)
		return -1;
	return cookie_host(ctx, p, cpu, tcp);
}

/* What becomes of a packet that a rule challenges: an XDP action, or -1: it may pass. */
static __always_inline int shield_challenge(struct xdp_md *ctx, const struct shield_packet *p)
{
	struct shield_cookie_cpu *cpu;
	__u32 zero = 0;

	if (cookie_mode == SHIELD_COOKIE_OFF)
		return -1;
	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu)
		return XDP_ABORTED;
	cpu->work.packet = *p;
	return shield_challenge_packet(ctx);
}

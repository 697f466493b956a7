/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the machine knows about a packet: whether it belongs to a connection, and whether somebody listens for it. Looked for in the kernel's
 * sockets and connection tracking; and whether its source was seen before.
 *
 * The answers are a number of three digits to the base of 3, each 0: cannot be said, 1: no, 2: yes; the lowest is the connection's, then the
 * listener's, then that of sources seen before. The same in Rust: crates/words/rules/src/known.rs.
 */
#pragma once

#include "filter/cookie/host.h"
#include "filter/rules.h"
#include "filter/seen.h"
#include "lib/conntrack.h"

#define KNOWN_LISTENER 3
#define KNOWN_SOURCE 9
#define KNOWN_NO 1
#define KNOWN_YES 2
/* The first two digits while they are looked for: two bits each, which need no division. */
#define LOOKED(connection, listener) ((connection) | (listener) << 2)
#define LOOKED_CONNECTION 3
/* The numbers of a table, rounded up to a power of two, less one. */
#define KNOWN_MASK 31

/* Nothing can be said of any packet. */
const volatile bool known_nothing = false;
/* Packets for other machines are forwarded: whether somebody listens there is not ours to know. */
const volatile bool known_forwards = false;
/* Connection tracking is looked at, too: some of its connections end elsewhere, or at other addresses. */
const volatile bool known_tracks = false;
/* Who listens here can be said: nothing translates what comes to this machine. */
const volatile bool known_listens = true;
/* The MAC address that packets for this machine have; others are a bridge's. Only if known_mac_given. */
const volatile __u8 known_mac[6] __attribute__((aligned(4))) = {};
const volatile bool known_mac_given = false;

/* Whether the packet ends a handshake that was begun by a cookie of the kernel's for this listener, by the kernel's own check: it costs a hash only
 * where the listener has sent any within the last two minutes. */
static __always_inline bool known_ends_handshake(struct shield_cookie_work *w, const struct packet *p, const struct tcphdr *tcp, struct bpf_sock *listener)
{
	if ((p->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK)
		return false;
	cookie_addresses(w, p);
	w->tcp.seq = tcp->seq;
	w->tcp.ack_seq = tcp->ack_seq;
	/* Its length in words, and the ACK bit. */
	((__be16 *)&w->tcp)[6] = bpf_htons(5 << 12 | TCP_ACK);
	w->ip.version = p->family;
	if (p->family == 4)
		return !bpf_tcp_check_syncookie(listener, &w->ip, sizeof(w->ip), &w->tcp, sizeof(w->tcp));
	return !bpf_tcp_check_syncookie(listener, &w->ip6, sizeof(w->ip6), &w->tcp, sizeof(w->tcp));
}

/* A connection, or nobody, or a listener, of a TCP packet: LOOKED(). */
static __always_inline __u32 known_tcp(struct xdp_md *ctx, struct shield_cookie_cpu *cpu, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct tcphdr *tcp = apart(data, low_bits(p->transport_at, SHIELD_AT_MASK));
	__u32 known = LOOKED(KNOWN_YES, KNOWN_YES);
	struct bpf_sock *sk;

	if ((void *)(tcp + 1) > end)
		return 0;
	sk = cookie_look(ctx, &cpu->work, p);
	if (!sk)
		return LOOKED(KNOWN_NO, KNOWN_NO);
	if (sk->state == BPF_TCP_LISTEN && !known_ends_handshake(&cpu->work, p, tcp, sk))
		known = LOOKED(KNOWN_NO, KNOWN_YES);
	bpf_sk_release(sk);
	return known;
}

/* Likewise of UDP, where a connection is a socket with a peer. */
static __always_inline __u32 known_udp(struct xdp_md *ctx, struct shield_cookie_cpu *cpu, const struct packet *p)
{
	struct bpf_sock_tuple *tuple = &cpu->work.tuple;
	__u32 known = LOOKED(KNOWN_NO, KNOWN_NO);
	struct bpf_sock *sk;

	if (cookie_tuple(&cpu->work, p) == sizeof(tuple->ipv4))
		sk = bpf_sk_lookup_udp(ctx, tuple, sizeof(tuple->ipv4), BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(ctx, tuple, sizeof(tuple->ipv6), BPF_F_CURRENT_NETNS, 0);
	if (sk) {
		known = LOOKED(sk->state == BPF_TCP_ESTABLISHED ? KNOWN_YES : KNOWN_NO, KNOWN_YES);
		bpf_sk_release(sk);
	}
	return known;
}

/* Whether connection tracking has the packet's connection. */
static __always_inline bool known_tracked(struct xdp_md *ctx, struct shield_cookie_cpu *cpu, const struct packet *p)
{
	struct bpf_ct_opts___old opts = { .netns_id = BPF_F_CURRENT_NETNS };
	struct nf_conn *conn;
	__u32 len;

	if (!known_tracks)
		return false;
	opts.l4proto = p->protocol;
	len = cookie_tuple(&cpu->work, p);
	conn = bpf_xdp_ct_lookup(ctx, &cpu->work.tuple, len, &opts, sizeof(opts));
	if (!conn)
		return false;
	bpf_ct_release(conn);
	return true;
}

/* What sockets and connection tracking say of the packet that is worked with: LOOKED(). */
static __always_inline __u32 known_look(struct xdp_md *ctx)
{
	struct shield_cookie_cpu *cpu;
	struct packet *p;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	__u32 zero = 0, known;

	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu || (void *)(eth + 1) > end)
		return 0;
	p = &cpu->work.packet;
	if (known_mac_given && (*(__be32 *)eth->h_dest != *(const volatile __be32 *)known_mac ||
				*(__be16 *)(eth->h_dest + 4) != *(const volatile __be16 *)(known_mac + 4)))
		return 0;
	/* A group, or all: as many may listen as like. */
	if (known_nothing || !p->has_ports || cookie_no_destination(p))
		return 0;
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return 0;
	if (known_forwards && cookie_passes_by(ctx, p, cpu)) {
		/* What is forwarded may go by untracked, or one way alone. */
		return known_tracked(ctx, cpu, p) ? LOOKED(KNOWN_YES, 0) : 0;
	}
	known = p->protocol == IPPROTO_TCP ? known_tcp(ctx, cpu, p) : known_udp(ctx, cpu, p);
	if ((known & LOOKED_CONNECTION) == KNOWN_NO && known_tracked(ctx, cpu, p))
		known += KNOWN_YES - KNOWN_NO;
	return known_listens ? known : known & LOOKED_CONNECTION;
}

/* The same as a global function: verified once, by itself, with a stack of its own. */
__noinline __u32 shield_look(struct xdp_md *ctx)
{
	return known_look(ctx);
}

/* Whether the packet that is worked with is the end of a handshake that was begun by a cookie of ours. A function of its own, as the stack is full. */
__noinline int shield_cookie_comes_back(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct shield_cookie_cpu *cpu;
	__u32 zero = 0, seq, number;
	struct tcphdr *tcp;
	struct packet *p;

	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu)
		return 0;
	p = &cpu->work.packet;
	tcp = apart(data, low_bits(p->transport_at, SHIELD_AT_MASK));
	if (p->protocol != IPPROTO_TCP || (p->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK || (void *)(tcp + 1) > end)
		return 0;
	seq = bpf_ntohl(tcp->seq) - 1;
	number = bpf_ntohl(tcp->ack_seq) - 1;
	return connected_began(&cpu->recent, p, seq, number) || (cookie_mode != SHIELD_COOKIE_OFF && cookie_number_mss(p, seq, number));
}

/* Where what is worked with is; 0: nowhere. */
static __always_inline struct shield_cookie_cpu *known_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cookie_counts, &zero);
}

/* The number of the row of what is known about the packet that is worked with, of which known_look() says `looked`, within those of the field. A call
 * and its return take as long as ten to twenty loads where returns are guarded (SRSO): none is made in vain. */
static __always_inline __u64 known_row(struct xdp_md *ctx, struct shield_cookie_cpu *cpu, __u32 looked)
{
	__u32 known;

	if ((looked & LOOKED_CONNECTION) == KNOWN_NO && looked != LOOKED(KNOWN_NO, KNOWN_NO) &&
	    (cookie_mode != SHIELD_COOKIE_OFF || connected_lately(&cpu->recent)) && shield_cookie_comes_back(ctx))
		looked += KNOWN_YES - KNOWN_NO;
	known = (looked & LOOKED_CONNECTION) + KNOWN_LISTENER * (looked >> 2);
	if (seen_on && !known_nothing)
		known += KNOWN_SOURCE * (seen_before(&cpu->work.packet) ? KNOWN_YES : KNOWN_NO);
	return resized(shield_known_class)[known & KNOWN_MASK] & shield_mask[SHIELD_KNOWN];
}

/* Where the rows of what cannot be said begin: those rules have no bit there that ask for something. */
static __always_inline __u64 shield_unknown_row(void)
{
	return resized(shield_known_class)[0] & shield_mask[SHIELD_KNOWN];
}

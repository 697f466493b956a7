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

#define KNOWN_CONNECTION 1
#define KNOWN_LISTENER 3
#define KNOWN_SOURCE 9
#define KNOWN_NO 1
#define KNOWN_YES 2
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
const volatile __u8 known_mac[6] = {};
const volatile bool known_mac_given = false;

/* A connection, or nobody, or a listener, of a TCP packet. */
static __always_inline __u32 known_tcp(struct xdp_md *ctx, struct shield_cookie_cpu *cpu, const struct packet *p)
{
	int state = cookie_socket(ctx, &cpu->work, p);

	if (!state)
		return KNOWN_CONNECTION * KNOWN_NO + KNOWN_LISTENER * KNOWN_NO;
	if (state != BPF_TCP_LISTEN && state != COOKIE_MULTIPATH)
		return KNOWN_CONNECTION * KNOWN_YES + KNOWN_LISTENER * KNOWN_YES;
	return KNOWN_CONNECTION * KNOWN_NO + KNOWN_LISTENER * KNOWN_YES;
}

/* Likewise of UDP, where a connection is a socket with a peer. */
static __always_inline __u32 known_udp(struct xdp_md *ctx, struct shield_cookie_cpu *cpu, const struct packet *p)
{
	struct bpf_sock_tuple *tuple = &cpu->work.tuple;
	__u32 known = KNOWN_CONNECTION * KNOWN_NO + KNOWN_LISTENER * KNOWN_NO;
	struct bpf_sock *sk;

	if (cookie_tuple(&cpu->work, p) == sizeof(tuple->ipv4))
		sk = bpf_sk_lookup_udp(ctx, tuple, sizeof(tuple->ipv4), BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(ctx, tuple, sizeof(tuple->ipv6), BPF_F_CURRENT_NETNS, 0);
	if (sk) {
		known = KNOWN_LISTENER * KNOWN_YES + KNOWN_CONNECTION * (sk->state == BPF_TCP_ESTABLISHED ? KNOWN_YES : KNOWN_NO);
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

/* What sockets and connection tracking say of the packet that is worked with. A global function: verified once, by itself. */
__noinline __u32 shield_look(struct xdp_md *ctx)
{
	struct shield_cookie_cpu *cpu;
	struct packet *p;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	__u32 zero = 0, known;
	int i;

	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu || (void *)(eth + 1) > end)
		return 0;
	p = &cpu->work.packet;
	if (known_mac_given) {
		for (i = 0; i < 6; i++)
			if (eth->h_dest[i] != known_mac[i])
				return 0;
	}
	/* A group, or all: as many may listen as like. */
	if (known_nothing || !p->has_ports || cookie_no_destination(p))
		return 0;
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return 0;
	if (known_forwards && cookie_passes_by(ctx, p, cpu)) {
		/* What is forwarded may go by untracked, or one way alone. */
		return known_tracked(ctx, cpu, p) ? KNOWN_CONNECTION * KNOWN_YES : 0;
	}
	known = p->protocol == IPPROTO_TCP ? known_tcp(ctx, cpu, p) : known_udp(ctx, cpu, p);
	if (known % KNOWN_LISTENER == KNOWN_NO && known_tracked(ctx, cpu, p))
		known += KNOWN_YES - KNOWN_NO;
	return known_listens ? known : known % KNOWN_LISTENER;
}

/* Whether the packet that is worked with is the end of a handshake that was begun by a cookie, the kernel's or ours. A function of its own, as the stack
 * of shield_look() is full. */
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
	tcp = data + (p->transport_at & SHIELD_AT_MASK);
	if (p->protocol != IPPROTO_TCP || (p->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK || (void *)(tcp + 1) > end)
		return 0;
	seq = bpf_ntohl(tcp->seq) - 1;
	number = bpf_ntohl(tcp->ack_seq) - 1;
	return connected_began(cpu->fresh, p, seq, number) || (cookie_mode != SHIELD_COOKIE_OFF && cookie_number_mss(p, seq, number)) ||
	       cookie_is_kernels(&cpu->work, p, seq, number);
}

/* The number of the row of what is known about the packet, within those of the field. */
static __always_inline __u64 shield_known_row(struct xdp_md *ctx, const struct packet *p)
{
	struct shield_cookie_cpu *cpu;
	__u32 zero = 0, known;

	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu)
		return 0;
	cpu->work.packet = *p;
	known = shield_look(ctx);
	if (known % KNOWN_LISTENER == KNOWN_NO && known != KNOWN_CONNECTION * KNOWN_NO + KNOWN_LISTENER * KNOWN_NO && shield_cookie_comes_back(ctx))
		known += KNOWN_YES - KNOWN_NO;
	if (seen_asked && !known_nothing)
		known += KNOWN_SOURCE * (seen_before(p) ? KNOWN_YES : KNOWN_NO);
	return resized(shield_known_class)[known & KNOWN_MASK] & shield_mask[SHIELD_KNOWN];
}

/* Where the rows of what cannot be said begin: those rules have no bit there that ask for something. */
static __always_inline __u64 shield_unknown_row(void)
{
	return resized(shield_known_class)[0] & shield_mask[SHIELD_KNOWN];
}

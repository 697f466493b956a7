/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Host mode: SYNs to listeners of this machine answered by cookies, and the ACKs that bring them back. */
#pragma once

#include "filter/cookie/common.h"

#ifndef AF_INET
#define AF_INET 2
#define AF_INET6 10
#endif

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

/* Whether `number` is one of the kernel's cookies of the last two minutes for the client's sequence number `seq`, its SYN's. Both in host order. */
static __always_inline bool cookie_is_kernels(struct shield_cookie_work *w, const struct packet *p, __u32 seq, __u32 number)
{
	cookie_addresses(w, p);
	w->tcp.seq = bpf_htonl(seq + 1);
	w->tcp.ack_seq = bpf_htonl(number + 1);
	if (p->family == 4)
		return !bpf_tcp_raw_check_syncookie_ipv4(&w->ip, &w->tcp);
	return !bpf_tcp_raw_check_syncookie_ipv6(&w->ip6, &w->tcp);
}

/* Beside the states of TCP: a listener of MPTCP. */
#define COOKIE_MULTIPATH 255

/* Whether a listener takes MPTCP: the kernel makes no connection of a cookie for it (bpf_sk_assign_tcp_reqsk). */
static __always_inline bool cookie_is_multipath(struct bpf_sock *sk)
{
	bool is = false;
	void *tcp;

	if (!cookie_mptcp_at)
		return false;
	tcp = bpf_skc_to_tcp_sock(sk);
	return tcp && !bpf_probe_read_kernel(&is, sizeof(is), tcp + cookie_mptcp_at) && is;
}

/* The sockets' tuple of the packet, in `w`; how long it is. */
static __always_inline __u32 cookie_tuple(struct shield_cookie_work *w, const struct packet *p)
{
	struct bpf_sock_tuple *tuple = &w->tuple;

	if (p->family == 4) {
		tuple->ipv4.saddr = p->source[0];
		tuple->ipv4.daddr = p->destination[0];
		tuple->ipv4.sport = bpf_htons(p->source_port);
		tuple->ipv4.dport = bpf_htons(p->destination_port);
		return sizeof(tuple->ipv4);
	}
	__builtin_memcpy(tuple->ipv6.saddr, p->source, 16);
	__builtin_memcpy(tuple->ipv6.daddr, p->destination, 16);
	tuple->ipv6.sport = bpf_htons(p->source_port);
	tuple->ipv6.dport = bpf_htons(p->destination_port);
	return sizeof(tuple->ipv6);
}

/* The packet's socket, to be released; 0: none. */
static __always_inline struct bpf_sock *cookie_look(struct xdp_md *ctx, struct shield_cookie_work *w, const struct packet *p)
{
	if (cookie_tuple(w, p) == sizeof(w->tuple.ipv4))
		return bpf_skc_lookup_tcp(ctx, &w->tuple, sizeof(w->tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	return bpf_skc_lookup_tcp(ctx, &w->tuple, sizeof(w->tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* The state of the socket that the packet is for: that of a connection if there is one, otherwise BPF_TCP_LISTEN, or COOKIE_MULTIPATH; 0:
 * none at all. */
static __always_inline int cookie_socket(struct xdp_md *ctx, struct shield_cookie_work *w, const struct packet *p)
{
	struct bpf_sock *sk = cookie_look(ctx, w, p);
	int state;

	if (!sk)
		return 0;
	state = sk->state;
	if (state == BPF_TCP_LISTEN && cookie_is_multipath(sk))
		state = COOKIE_MULTIPATH;
	bpf_sk_release(sk);
	return state;
}

/*
 * True if the packet's listener accepts cookies: its queue is full, or net.ipv4.tcp_syncookies is 2. From then on it takes those of the next two
 * minutes, whoever made them.
 */
static __always_inline bool cookie_listener_accepts(struct xdp_md *ctx, struct shield_cookie_work *w, const struct packet *p, __be32 seq)
{
	__s64 made = -1;
	struct bpf_sock *sk;

	cookie_syn(w, p, seq, 0);
	sk = cookie_look(ctx, w, p);
	if (!sk)
		return false;
	if (sk->state == BPF_TCP_LISTEN) {
		w->ip.version = p->family;
		if (p->family == 4)
			made = bpf_tcp_gen_syncookie(sk, &w->ip, sizeof(w->ip), &w->tcp, sizeof(w->tcp) + 4);
		else
			made = bpf_tcp_gen_syncookie(sk, &w->ip6, sizeof(w->ip6), &w->tcp, sizeof(w->tcp) + 4);
	}
	bpf_sk_release(sk);
	return made >= 0;
}

/*
 * Whether the packet crosses this machine, which is a router, to another one. A listener at any address looks as if it were there for it.
 * Where nothing is forwarded, the stack drops what is not for it, and so may we.
 */
static __always_inline bool cookie_crosses(struct xdp_md *ctx, struct shield_cookie_work *w, const struct packet *p)
{
	struct bpf_fib_lookup *route = &w->route;
	long code;

	__builtin_memset(route, 0, sizeof(*route));
	route->ifindex = ctx->ingress_ifindex;
	route->l4_protocol = IPPROTO_TCP;
	route->sport = bpf_htons(p->source_port);
	route->dport = bpf_htons(p->destination_port);
	if (p->family == 4) {
		route->family = AF_INET;
		route->ipv4_src = p->source[0];
		route->ipv4_dst = p->destination[0];
	} else {
		route->family = AF_INET6;
		__builtin_memcpy(route->ipv6_src, p->source, 16);
		__builtin_memcpy(route->ipv6_dst, p->destination, 16);
	}
	code = bpf_fib_lookup(ctx, route, sizeof(*route), 0);
	/* A route that refuses (unreachable, prohibit, blackhole) leads elsewhere as well: the refusal is the stack's to say. */
	return code != BPF_FIB_LKUP_RET_NOT_FWDED && code != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Marks the packet for shield_ack. */
static __always_inline int cookie_mark(struct xdp_md *ctx, struct shield_cookie_cpu *cpu)
{
	struct shield_ack *mark;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*mark))) {
		cpu->count.unmarked++;
		return XDP_DROP;
	}
	mark = (void *)(long)ctx->data_meta;
	if ((void *)(mark + 1) > (void *)(long)ctx->data) {
		cpu->count.unmarked++;
		return XDP_DROP;
	}
	*mark = cpu->work.ack;
	return -1;
}

/* The bits of a timestamp that say nothing of what the client offers: it has to come back with the cookie that it was sent with. */
static __always_inline __u32 stamp_rest(__u32 cookie)
{
	return (cookie ^ cookie << 16) & ~SHIELD_STAMP_MASK;
}

/* Answers a SYN with a cookie. */
static __always_inline int cookie_answer(struct xdp_md *ctx, struct packet *p, struct shield_cookie_cpu *cpu,
					 __be32 seq, __u8 doff, __u8 flags)
{
	struct shield_offer *offer = &cpu->work.offer;
	struct shield_reply *reply = &cpu->work.reply;
	__s64 kernels;
	__u32 cookie;

	*offer = (struct shield_offer){ .wscale = SHIELD_NO_WSCALE };
	if (doff > 5 && !cookie_options(ctx, offer, p->transport_at + sizeof(struct tcphdr), (doff - 5) * 4))
		return XDP_DROP;
	if (cookie_by_kernel) {
		kernels = cookie_make(&cpu->work, p, seq, offer->mss);
		if (kernels < 0) {
			cpu->count.failed++;
			return XDP_DROP;
		}
		cookie = kernels;
	} else {
		cookie = cookie_number(p, bpf_ntohl(seq), offer->mss);
	}
	reply->flags = TCP_SYN | TCP_ACK;
	reply->seq = bpf_htonl(cookie);
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
		stamp |= stamp_rest(cookie);
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

/* Looks at a first ACK, which may bring data, and marks it for shield_ack. */
static __always_inline int cookie_finish(struct xdp_md *ctx, struct packet *p, struct shield_cookie_cpu *cpu,
					 __be32 seq_be, __be32 ack_be, __u8 doff)
{
	__u32 seq = bpf_ntohl(seq_be) - 1, number = bpf_ntohl(ack_be) - 1;
	struct shield_cookie_work *w = &cpu->work;
	struct shield_offer *offer = &w->offer;
	struct shield_ack *ack = &w->ack;
	bool kernels;

	ack->mss = cookie_by_kernel ? 0 : cookie_number_mss(p, seq, number);
	kernels = !ack->mss && cookie_is_kernels(w, p, seq, number);
	ack->magic = SHIELD_ACK_MAGIC;
	ack->flags = 0;
	ack->tsval = 0;
	ack->tsecr = 0;
	ack->transport = p->transport_at - p->ip_at;
	if (!ack->mss && !kernels) {
		if (connected_began(&cpu->recent, p, seq, number)) {
			ack->flags = SHIELD_ACK_BEHIND;
			return cookie_by_kernel ? -1 : cookie_mark(ctx, cpu);
		}
		cpu->count.wrong++;
		return XDP_DROP;
	}
	if (cookie_by_kernel) {
		connected_note(p);
		connected_begins(&cpu->recent, p, seq, number);
		cpu->count.right++;
		return -1;
	}
	/* Of before rules challenged: the kernel knows what its own stands for. */
	if (kernels)
		return -1;
	ack->wscale = SHIELD_NO_WSCALE;
	*offer = (struct shield_offer){ .wscale = SHIELD_NO_WSCALE };
	if (doff > 5)
		cookie_options(ctx, offer, p->transport_at + sizeof(struct tcphdr), (doff - 5) * 4);
	if (cookie_timestamps && offer->timestamps) {
		__u32 stamp = bpf_ntohl(offer->tsecr);

		/* A stamp that was never sent with this cookie. */
		if (stamp_rest(number) != (stamp & ~SHIELD_STAMP_MASK)) {
			cpu->count.wrong++;
			return XDP_DROP;
		}
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
	}
	ack->own_wscale = cookie_wscale;
	if (cookie_mark(ctx, cpu) != -1)
		return XDP_DROP;
	connected_note(p);
	connected_begins(&cpu->recent, p, seq, number);
	cpu->count.right++;
	return -1;
}

/* Whether the packet crosses this machine. Asked once a tick for a destination that it does not cross to. */
static __always_inline bool cookie_passes_by(struct xdp_md *ctx, const struct packet *p, struct shield_cookie_cpu *cpu)
{
	if (connected_listens(cpu->listeners, p))
		return false;
	if (cookie_crosses(ctx, &cpu->work, p))
		return true;
	connected_listening(cpu->listeners, p);
	return false;
}

/*
 * Sources mode: what a source that is not known yet sends beside SYNs and RSTs. It passes: to a connection that was there before, or to
 * nothing. But an ACK that ends a handshake which host mode began is let in as there.
 */
static __always_inline int cookie_begun(struct xdp_md *ctx, struct packet *p, struct shield_cookie_cpu *cpu,
					__be32 seq_be, __be32 ack_be, __u8 doff, __u8 flags)
{
	__u32 seq = bpf_ntohl(seq_be) - 1, number = bpf_ntohl(ack_be) - 1;

	if (!cookie_until_ns || bpf_ktime_get_coarse_ns() >= cookie_until_ns)
		return -1;
	if ((flags != TCP_ACK && flags != (TCP_ACK | TCP_FIN)) || p->fragment != FRAGMENT_NONE || p->ip_at > sizeof(struct ethhdr) + 4)
		return -1;
	if (cookie_socket(ctx, &cpu->work, p) != BPF_TCP_LISTEN || cookie_passes_by(ctx, p, cpu))
		return -1;
	if (!cookie_number_mss(p, seq, number) && !connected_began(&cpu->recent, p, seq, number))
		return -1;
	return cookie_finish(ctx, p, cpu, seq_be, ack_be, doff);
}

static __always_inline int cookie_host(struct xdp_md *ctx, struct packet *p, struct shield_cookie_cpu *cpu,
				       struct tcphdr *tcp)
{
	__be32 seq = tcp->seq, ack = tcp->ack_seq;
	__u8 doff = tcp->doff;
	__u8 flags = p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
	bool later;
	int state;

	if (cookie_no_source(p) || cookie_no_destination(p) || cookie_to_itself(p)) {
		cpu->count.odd++;
		return XDP_DROP;
	}
	if (flags != TCP_SYN || !connected_listens(cpu->listeners, p) || connected_may(p)) {
		state = cookie_socket(ctx, &cpu->work, p);
		if (!state) {
			cpu->count.unlistened++;
			return cookie_drop_unlistened ? XDP_DROP : -1;
		}
		if (state == COOKIE_MULTIPATH) {
			if (flags == TCP_SYN)
				cpu->count.multipath++;
			return -1;
		}
		if (state != BPF_TCP_LISTEN) {
			connected_note(p);
			/* Half open since before rules challenged: the kernel sends its SYN-ACK again by itself, and a flood may send this SYN as often as it likes. */
			if (state == BPF_TCP_NEW_SYN_RECV && flags == TCP_SYN) {
				cpu->count.odd++;
				return XDP_DROP;
			}
			return -1;
		}
		if (!connected_listens(cpu->listeners, p)) {
			if (cookie_crosses(ctx, &cpu->work, p))
				return -1;
			connected_listening(cpu->listeners, p);
		}
	}
	if (flags == TCP_SYN && connected_withheld())
		return -1;
	if (cookie_by_kernel && flags == TCP_SYN && !connected_listens(cpu->by_cookie, p)) {
		if (!cookie_listener_accepts(ctx, &cpu->work, p, seq))
			return -1;
		connected_listening(cpu->by_cookie, p);
	}
	later = p->fragment != FRAGMENT_NONE;
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

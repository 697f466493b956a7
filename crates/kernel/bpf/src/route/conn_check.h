/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether a packet of a connection is forwarded here, how long it has the connection live, and what it is translated to. */
#pragma once

#include <linux/tcp.h>
#include <linux/udp.h>

#include "lib/cursor.h"
#include "route/conntrack.h"
#include "route/nexthop_cache.h"
#include "route/nat.h"

#define ROUTE_TCP_FIN 1
#define ROUTE_TCP_SYN 2
#define ROUTE_TCP_RST 4
#define ROUTE_TCP_ACK 16
/* Too large for the stack. */
PER_CPU(struct route_nat, route_nats);

/* A frame whose connection counts. */
struct route_tracked {
	struct route_decision d;
	/* The interface that all of a masqueraded connection leaves by; 0: any. */
	__u32 masq_ifindex;
	/* None: it is not translated. */
	struct route_nat *nat;
	/* The number of the next hop. */
	__u32 nexthop;
	/* Where its connection is remembered, and when that was begun. */
	__u32 slot;
	__u32 digest;
	__u64 now;
	/* Its connection was remembered: nothing has to be looked up. */
	bool is_cached;
	bool shadow;
};

/* The packet's part behind the IP header, as far as conntrack looks at it. */
struct route_segment {
	__be32 ports;
	bool tcp;
	/* TCP: its sender waits for an answer. */
	bool expects_ack;
};

/* False with the reason in `end`. */
static __always_inline bool route_parse_segment(struct route_segment *s, struct cursor *c, __u8 protocol, __u32 left, enum route_verdict *verdict)
{
	struct tcphdr *tcp;
	struct udphdr *udp;
	__u8 flags;

	if (protocol == IPPROTO_TCP) {
		tcp = cursor_take(c, sizeof(*tcp));
		*verdict = ROUTE_BAD_HEADER;
		if (!tcp || tcp->doff < 5 || left < tcp->doff * 4)
			return false;
		flags = ((__u8 *)tcp)[13];
		*verdict = ROUTE_HANDSHAKE;
		if ((flags & (ROUTE_TCP_FIN | ROUTE_TCP_SYN | ROUTE_TCP_RST | ROUTE_TCP_ACK)) != ROUTE_TCP_ACK)
			return false;
		s->ports = *(__be32 *)tcp;
		s->tcp = true;
		s->expects_ack = left > tcp->doff * 4 || !tcp->window;
		return true;
	}
	if (protocol == IPPROTO_UDP) {
		udp = cursor_take(c, sizeof(*udp));
		*verdict = ROUTE_BAD_HEADER;
		if (!udp || bpf_ntohs(udp->len) < sizeof(*udp) || bpf_ntohs(udp->len) > left)
			return false;
		s->ports = *(__be32 *)udp;
		s->tcp = false;
		s->expects_ack = false;
		return true;
	}
	*verdict = ROUTE_UNTRACKED;
	return false;
}

/* Milliseconds that the connection is granted because of this packet, as if the kernel had seen it; 0: it has them. Where a sender waits for an
 * answer the kernel grants less time. */
static __always_inline __u32 route_renewal_ms(const struct nf_conn *conn, const struct route_segment *s)
{
	const struct route_track *track = &route_config.track;
	/* Not all at the same moment: up to an eighth of the time is over by then. */
	__u32 parts = 1 + ((s->ports ^ s->ports >> 16) & 3), whole = track->established.ticks, ms = track->established.ms;
	__s32 left = conn->timeout - (__u32)bpf_jiffies64();

	if (!s->tcp) {
		whole = track->stream.ticks;
		ms = track->stream.ms;
	} else if (s->expects_ack && track->unanswered.ticks < whole) {
		/* What was granted in the last few ticks was for an answer: the next one is on its way. */
		bool is_long = left > (__s32)track->unanswered.ticks && left + (__s32)track->slack < (__s32)whole;

		whole = track->unanswered.ticks;
		ms = track->unanswered.ms;
		if (is_long)
			left = 0;
	}
	return left < (__s32)(whole - whole / 32 * parts) ? ms : 0;
}

/* The packet is translated: `other` is how the packets of the other direction look when they come. */
static __always_inline enum route_verdict route_set_nat(const struct nf_conntrack_tuple *other, struct route_tracked *t, struct route_key *k,
						    const struct route_segment *s, bool v6)
{
	struct route_nat *nat;
	__u32 zero = 0, i, words = v6 ? 4 : 1;
	__u64 sum = 0;

	nat = bpf_map_lookup_elem(&route_nats, &zero);
	if (!nat)
		return ROUTE_NOT_ESTABLISHED;
	for (i = 0; i < words; i++) {
		/* What the other direction comes from is where this one goes to. */
		nat->from[i] = other->dst.u3.all[i];
		nat->to[i] = other->src.u3.all[i];
		sum += (__u64)(__u32)~k->from[i] + nat->from[i] + (__u32)~k->to[i] + nat->to[i];
		/* The kernel routes between the two translations: by where it goes now, and where it came from before. */
		k->to[i] = nat->to[i];
	}
	nat->ports = other->dst.u.all | (__u32)other->src.u.all << 16;
	nat->addresses = sum;
	nat->all = sum + (__u32)~s->ports + nat->ports;
	nat->tcp = s->tcp;
	t->nat = nat;
	if (k->by & ROUTE_BY_PORTS)
		k->ports = (s->ports & 0x0000ffff) | (nat->ports & 0xffff0000);
	return ROUTE_FORWARDED;
}

/* Whether the connection is, at this moment, one whose packets are forwarded here. */
static __always_inline enum route_verdict route_conn_verdict(const struct nf_conn *conn, const struct route_segment *s, __u64 status, bool v6)
{
	const struct route_track *track = &route_config.track;

	if ((conn->mark & track->mask) != track->mark)
		return ROUTE_UNMARKED;
	if ((status & ROUTE_ESTABLISHED_BITS) != ROUTE_ESTABLISHED_BITS || status & ROUTE_CLOSING_BITS)
		return ROUTE_NOT_ESTABLISHED;
	if (status & ROUTE_SPECIAL_BITS)
		return ROUTE_CT_EXTENSION;
	/* With its last chain of NAT the kernel translates nothing any more. */
	if (status & ROUTE_NAT && !(track->nat >> v6 & 1))
		return ROUTE_CT_EXTENSION;
	if (s->tcp) {
		if (conn->proto.tcp.state != ROUTE_ESTABLISHED)
			return ROUTE_NOT_ESTABLISHED;
		if (!track->tcp)
			return ROUTE_WINDOW;
	}
	return ROUTE_FORWARDED;
}

/* Held against the connection; where it is translated, `t` and the key that the route is looked up by. */
static __always_inline enum route_verdict route_check_conn(struct nf_conn *conn, struct route_tracked *t, struct route_key *k, const struct route_segment *s,
						  bool reply, bool v6)
{
	__u64 status = conn->status;
	struct nf_conn_nat *moves;
	struct nf_ct_ext *ext;
	enum route_verdict verdict;
	__u8 at;

	verdict = route_conn_verdict(conn, s, status, v6);
	if (verdict != ROUTE_FORWARDED)
		return verdict;
	ext = conn->ext;
	if (ext) {
		/* A place for sequence numbers is there also where none are rewritten: the bit above says which. */
		if (route_ext_at(ext, NF_CT_EXT_HELPER) | route_ext_at(ext, NF_CT_EXT_TIMEOUT))
			return ROUTE_CT_EXTENSION;
	}
	if (!(status & ROUTE_NAT))
		return ROUTE_FORWARDED;
	if (ext && !reply) {
		at = route_ext_at(ext, NF_CT_EXT_NAT);
		if (at) {
			/* A type of the module nf_nat, which no pointer is cast to: known if that was there when this program was loaded. */
			moves = (void *)ext + at;
			if (!bpf_core_field_exists(moves->masq_index) ||
			    bpf_core_read(&t->masq_ifindex, sizeof(t->masq_ifindex), &moves->masq_index))
				return ROUTE_CT_EXTENSION;
		}
	}
	return route_set_nat(reply ? &conn->tuplehash[0].tuple : &conn->tuplehash[1].tuple, t, k, s, v6);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether a frame belongs to a connection that the operator's rules let be forwarded here, and what it is translated to. */
#pragma once

#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_core_read.h>

#include "lib/cursor.h"
#include "route/remember.h"

#define ROUTE_TCP_FIN 1
#define ROUTE_TCP_SYN 2
#define ROUTE_TCP_RST 4
#define ROUTE_TCP_ACK 16
/* TCP_CONNTRACK_ESTABLISHED of linux/netfilter/nf_conntrack_tcp.h. */
#define ROUTE_ESTABLISHED 3

/* linux/netfilter/nf_conntrack_common.h: IPS_*. */
#define ROUTE_SEEN_REPLY (1 << 1)
#define ROUTE_ASSURED (1 << 2)
#define ROUTE_CONFIRMED (1 << 3)
#define ROUTE_NAT (1 << 4 | 1 << 5)
#define ROUTE_SEQ_ADJUST (1 << 6)
#define ROUTE_DYING (1 << 9)
#define ROUTE_TEMPLATE (1 << 11)
#define ROUTE_NAT_CLASH (1 << 12)
#define ROUTE_HELPER (1 << 13)
#define ROUTE_OFFLOAD (1 << 14 | 1 << 15)

#define ROUTE_SETTLED (ROUTE_SEEN_REPLY | ROUTE_ASSURED | ROUTE_CONFIRMED)
#define ROUTE_UNSETTLED (ROUTE_DYING | ROUTE_TEMPLATE | ROUTE_NAT_CLASH)
#define ROUTE_SPECIAL_BITS (ROUTE_SEQ_ADJUST | ROUTE_HELPER | ROUTE_OFFLOAD)

/* Of the kernel's own types what is read here. */
union nf_inet_addr {
	__u32 all[4];
} __attribute__((preserve_access_index));

union nf_conntrack_man_proto {
	__be16 all;
} __attribute__((preserve_access_index));

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
	} dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct nf_ct_ext {
	__u8 offset[16];
} __attribute__((preserve_access_index));

struct ip_ct_tcp {
	__u8 state;
} __attribute__((preserve_access_index));

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
} __attribute__((preserve_access_index));

struct nf_conn {
	__u32 timeout;
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	__u32 mark;
	struct nf_ct_ext *ext;
	union nf_conntrack_proto proto;
} __attribute__((preserve_access_index));

struct nf_conn_nat {
	int masq_index;
} __attribute__((preserve_access_index));

enum nf_ct_ext_id {
	NF_CT_EXT_HELPER,
	NF_CT_EXT_NAT,
	NF_CT_EXT_TIMEOUT,
};

/* Its size of Linux 6.0 to 6.9; later ones take this too. */
struct bpf_ct_opts___route {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple, __u32 tuple_len, struct bpf_ct_opts___route *opts,
					 __u32 opts_len) __ksym;
extern void bpf_ct_release(struct nf_conn *conn) __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *conn, __u32 milliseconds) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

/* One of an array of the kernel's, whose size and order are the kernel's own. */
#define route_ext_at(ext, id) (bpf_core_enum_value_exists(enum nf_ct_ext_id, id) ? (ext)->offset[bpf_core_enum_value(enum nf_ct_ext_id, id)] : 0)

/* Too large for the stack. */
PER_CPU(struct route_nat, route_nats);

/* The packet's part behind the IP header, as far as conntrack looks at it. */
struct route_segment {
	__be32 ports;
	bool tcp;
	/* TCP: its sender waits for an answer. */
	bool waits;
};

/* False with the reason in `end`. */
static __always_inline bool route_read_segment(struct route_segment *s, struct cursor *c, __u8 protocol, __u32 left, enum route_end *end)
{
	struct tcphdr *tcp;
	struct udphdr *udp;
	__u8 flags;

	if (protocol == IPPROTO_TCP) {
		tcp = cursor_take(c, sizeof(*tcp));
		*end = ROUTE_BAD_HEADER;
		if (!tcp || tcp->doff < 5 || left < tcp->doff * 4)
			return false;
		flags = ((__u8 *)tcp)[13];
		*end = ROUTE_HANDSHAKE;
		if ((flags & (ROUTE_TCP_FIN | ROUTE_TCP_SYN | ROUTE_TCP_RST | ROUTE_TCP_ACK)) != ROUTE_TCP_ACK)
			return false;
		s->ports = *(__be32 *)tcp;
		s->tcp = true;
		s->waits = left > tcp->doff * 4 || !tcp->window;
		return true;
	}
	if (protocol == IPPROTO_UDP) {
		udp = cursor_take(c, sizeof(*udp));
		*end = ROUTE_BAD_HEADER;
		if (!udp || bpf_ntohs(udp->len) < sizeof(*udp) || bpf_ntohs(udp->len) > left)
			return false;
		s->ports = *(__be32 *)udp;
		s->tcp = false;
		s->waits = false;
		return true;
	}
	*end = ROUTE_UNTRACKED;
	return false;
}

/* Has the connection live on as it would if the kernel had seen the packet. Where a sender waits for an answer the kernel grants it less time. */
static __always_inline void route_keep(struct nf_conn *conn, const struct route_segment *s)
{
	const struct route_track *track = &route_config.track;
	__u32 whole = track->established.ticks, ms = track->established.ms;
	__s32 left = conn->timeout - (__u32)bpf_jiffies64();

	if (!s->tcp) {
		whole = track->stream.ticks;
		ms = track->stream.ms;
	} else if (s->waits && track->unanswered.ticks < whole) {
		/* What was granted in the last few ticks was for an answer: the next one is on its way. */
		bool is_long = left > (__s32)track->unanswered.ticks && left + (__s32)track->slack < (__s32)whole;

		whole = track->unanswered.ticks;
		ms = track->unanswered.ms;
		if (is_long)
			left = 0;
	}
	if (left < (__s32)(whole / 2))
		/* One that must not be changed keeps its own. */
		bpf_ct_change_timeout(conn, ms);
}

/* What the packet is translated to, given the tuple of the other direction. */
static __always_inline enum route_end route_find_nat(const struct nf_conntrack_tuple *other, struct route_decision *d, struct route_key *k,
						     const struct route_segment *s, bool v6)
{
	struct route_nat *nat;
	__u32 zero = 0, i, words = v6 ? 4 : 1;
	__u64 sum = 0;

	nat = bpf_map_lookup_elem(&route_nats, &zero);
	if (!nat)
		return ROUTE_NOT_SETTLED;
	for (i = 0; i < words; i++) {
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
	d->nat = nat;
	if (k->by & ROUTE_BY_PORTS)
		k->ports = (s->ports & 0x0000ffff) | (nat->ports & 0xffff0000);
	return ROUTE_FORWARDED;
}

/* Held against the connection; where it is translated, `d` and the key that the route is looked up by. */
static __always_inline enum route_end route_judge(struct nf_conn *conn, struct route_decision *d, struct route_key *k, const struct route_segment *s,
						  bool reply, bool v6)
{
	const struct route_track *track = &route_config.track;
	__u64 status = conn->status;
	struct nf_conn_nat *moves;
	struct nf_ct_ext *ext;
	__u8 at;

	if ((conn->mark & track->mask) != track->mark)
		return ROUTE_UNMARKED;
	if ((status & ROUTE_SETTLED) != ROUTE_SETTLED || status & ROUTE_UNSETTLED)
		return ROUTE_NOT_SETTLED;
	if (status & ROUTE_SPECIAL_BITS)
		return ROUTE_SPECIAL;
	if (s->tcp) {
		if (conn->proto.tcp.state != ROUTE_ESTABLISHED)
			return ROUTE_NOT_SETTLED;
		if (!track->tcp)
			return ROUTE_WINDOW;
	}
	ext = conn->ext;
	if (ext) {
		/* A place for sequence numbers is there also where none are rewritten: the bit above says which. */
		if (route_ext_at(ext, NF_CT_EXT_HELPER) | route_ext_at(ext, NF_CT_EXT_TIMEOUT))
			return ROUTE_SPECIAL;
	}
	if (!(status & ROUTE_NAT))
		return ROUTE_FORWARDED;
	if (ext && !reply) {
		at = route_ext_at(ext, NF_CT_EXT_NAT);
		if (at) {
			moves = bpf_rdonly_cast((void *)ext + at, bpf_core_type_id_kernel(struct nf_conn_nat));
			d->leaves = moves->masq_index;
		}
	}
	/* What the other direction comes from is where this one goes to. */
	return route_find_nat(reply ? &conn->tuplehash[0].tuple : &conn->tuplehash[1].tuple, d, k, s, v6);
}

/* `left` bytes of the packet are behind its IP header, where `c` is. */
static __always_inline enum route_end route_track(struct xdp_md *ctx, struct cursor *c, struct route_decision *d, struct route_key *k, __u32 left,
						  bool v6)
{
	struct bpf_ct_opts___route opts = { .netns_id = BPF_F_CURRENT_NETNS };
	struct bpf_sock_tuple tuple;
	struct route_segment s;
	enum route_end end;
	struct nf_conn *conn;

	if (!route_read_segment(&s, c, k->protocol, left, &end))
		return end;
	opts.l4proto = k->protocol;
	if (v6) {
		__builtin_memcpy(tuple.ipv6.saddr, k->from, sizeof(k->from));
		__builtin_memcpy(tuple.ipv6.daddr, k->to, sizeof(k->to));
		*(__be32 *)&tuple.ipv6.sport = s.ports;
	} else {
		tuple.ipv4.saddr = k->from[0];
		tuple.ipv4.daddr = k->to[0];
		*(__be32 *)&tuple.ipv4.sport = s.ports;
	}
	if (k->by & ROUTE_BY_PORTS)
		k->ports = s.ports;
	conn = bpf_xdp_ct_lookup(ctx, &tuple, v6 ? sizeof(tuple.ipv6) : sizeof(tuple.ipv4), &opts, sizeof(opts));
	if (!conn)
		return ROUTE_NO_CONNECTION;
	end = route_judge(conn, d, k, &s, opts.dir, v6);
	/* In shadow the kernel itself sees the packet. */
	if (end == ROUTE_FORWARDED && !d->shadow)
		route_keep(conn, &s);
	bpf_ct_release(conn);
	return end;
}

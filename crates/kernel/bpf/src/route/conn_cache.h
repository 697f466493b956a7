/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connections that conntrack named, remembered by each CPU for some seconds at the most. Nothing of them is
 * believed: the connection itself is read for each packet, without a search for it. Its memory holds connections alone until a moment after
 * the last of them has ended, and whatever is there by then is held against the packet's addresses and ports, and against the destination that
 * the way out was asked for.
 */
#pragma once

#include "route/conn_check.h"

/* Connections that share two cache lines, a power of two. */
#define ROUTE_CONNECTIONS 4

/* Groups of connections of each CPU, a power of two, less one. */
const volatile __u32 route_connections_mask = 0;

/* The place of one that is not to be remembered. */
#define ROUTE_NO_SLOT (~0U)
#define ROUTE_NEVER (~0ULL)
/* Its packets are the connection's answers. */
#define ROUTE_REPLY (1U << 31)

struct route_connection {
	__u64 generation;
	/* struct nf_conn */
	__u64 conn;
	/* Where its packets go to once they are translated: of IPv6 a digest. */
	__u64 to;
	/* ROUTE_REPLY, the way in << ROUTE_NEXTHOP_BITS, the next hop. */
	__u32 path;
	/* Of the hash of the packet's addresses, ports and protocol. */
	__u32 digest;
};

struct route_connections {
	struct route_connection one[ROUTE_CONNECTIONS];
};

ROUTE_TABLE(struct route_connections, route_conns, 1);

static __always_inline struct route_connection *route_connection_at(__u32 slot)
{
	__u32 at = slot / ROUTE_CONNECTIONS;
	struct route_connections *group = bpf_map_lookup_elem(&route_conns, &at);

	return group ? &group->one[slot % ROUTE_CONNECTIONS] : 0;
}

static __always_inline bool route_same_address(const __u32 *a, const __u32 *b, bool v6)
{
	return a[0] == b[0] && (!v6 || (a[1] == b[1] && a[2] == b[2] && a[3] == b[3]));
}

static __always_inline __u64 route_address_digest(const __u32 *address, bool v6)
{
	return v6 ? route_whole_hash((__u64)address[0] << 32 | address[1], (__u64)address[2] << 32 | address[3]) : address[0];
}

/* The network namespace of what conntrack names here, as struct net. */
__u64 route_net;

/* Whether that memory holds, now, a connection that conntrack would name here: of this namespace, in no zone. */
static __always_inline bool route_conn_is_local(const struct nf_conn *conn)
{
	if ((__u64)conn->ct_net.net != *(volatile __u64 *)&route_net)
		return false;
	return !bpf_core_field_exists(conn->zone) || !conn->zone.id;
}

/* Whether that memory holds, now, the connection of these packets. */
static __always_inline bool route_conn_matches(const struct nf_conntrack_tuple *own, const struct route_key *k, const struct route_segment *s,
					   __u8 reply, bool v6)
{
	return route_same_address(own->src.u3.all, k->from, v6) && route_same_address(own->dst.u3.all, k->to, v6) &&
	       (own->src.u.all | (__u32)own->dst.u.all << 16) == s->ports && own->dst.protonum == k->protocol && own->dst.dir == reply;
}

/* Whether the packet is of a connection that is known, with what becomes of it in `t`; if not, where the connection is to be remembered. */
static __always_inline bool route_conn_lookup(struct route_tracked *t, struct route_key *k, const struct route_segment *s, bool v6)
{
	__u64 generation = *(volatile __u64 *)&route_config.generation, now, hash, status, to;
	const struct nf_conntrack_tuple *own, *other;
	struct route_connection *found = 0, *one;
	struct route_connections *group;
	__u32 ingress = route_ingress(&t->d), at, i;
	struct route_nexthop *nexthop;
	struct nf_conn *conn;
	__u8 reply;

	t->slot = ROUTE_NO_SLOT;
	/* Packets of one connection may go different ways then. */
	if (k->by & (ROUTE_BY_TOS | ROUTE_BY_LABEL))
		return false;
	hash = v6 ? route_address_digest(k->from, v6) ^ route_address_digest(k->to, v6) * 3 : (__u64)k->from[0] << 32 | k->to[0];
	hash = route_whole_hash(hash, (__u64)k->protocol << 32 | s->ports);
	at = route_cpu_index(hash >> 33, route_connections_mask);
	now = route_group_generation(generation, at);
	group = bpf_map_lookup_elem(&route_conns, &at);
	if (!group)
		return false;
#pragma unroll
	for (i = 0; i < ROUTE_CONNECTIONS; i++) {
		one = &group->one[i];
		if (one->generation != now) {
			/* The first free one: so most are in the first of the two lines. */
			if (t->slot == ROUTE_NO_SLOT)
				t->slot = at * ROUTE_CONNECTIONS + i;
		} else if (one->digest == (__u32)hash && (one->path & ~ROUTE_REPLY) >> ROUTE_NEXTHOP_BITS == ingress) {
			t->slot = at * ROUTE_CONNECTIONS + i;
			found = one;
			break;
		}
	}
	t->now = now;
	t->digest = hash;
	if (!found)
		return false;
	reply = found->path / ROUTE_REPLY;
	conn = bpf_rdonly_cast((void *)found->conn, bpf_core_type_id_kernel(struct nf_conn));
	own = reply ? &conn->tuplehash[1].tuple : &conn->tuplehash[0].tuple;
	status = conn->status;
	if (!route_conn_is_local(conn) || !route_conn_matches(own, k, s, reply, v6) || route_conn_verdict(conn, s, status, v6) != ROUTE_FORWARDED)
		return false;
	/* What the other direction comes from is where this one goes to. */
	other = reply ? &conn->tuplehash[0].tuple : &conn->tuplehash[1].tuple;
	if (status & ROUTE_NAT) {
		to = route_address_digest(other->src.u3.all, v6);
		/* One instruction cannot read both the kernel's memory and the stack. */
		keep(to);
	} else {
		to = route_address_digest(k->to, v6);
	}
	if (to != found->to)
		return false;
	/* What has no time left is the kernel's, and its time is written with the connection in hand. */
	if ((__s32)(conn->timeout - (__u32)bpf_jiffies64()) <= 0 || (!t->shadow && route_renewal_ms(conn, s)))
		return false;
	nexthop = route_nexthop_at(found->path & (ROUTE_NEXTHOPS - 1));
	if (!nexthop)
		return false;
	t->is_cached = true;
	t->d.verdict = ROUTE_TOO_BIG;
	if (t->d.ip_len > nexthop->mtu)
		return true;
	route_nexthop_use(nexthop);
	route_set_nexthop(&t->d, nexthop);
	t->d.verdict = status & ROUTE_NAT ? route_set_nat(other, t, k, s, v6) : ROUTE_FORWARDED;
	return true;
}

/* conntrack has named the packet's connection. */
static __always_inline void route_conn_insert(struct route_tracked *t, struct nf_conn *conn, bool reply)
{
	__u64 net = (__u64)conn->ct_net.net;
	struct route_connection *one;

	if (t->slot == ROUTE_NO_SLOT)
		return;
	one = route_connection_at(t->slot);
	if (!one)
		return;
	/* Written where it differs only, as all CPUs read it. */
	if (*(volatile __u64 *)&route_net != net)
		*(volatile __u64 *)&route_net = net;
	one->generation = ROUTE_NEVER;
	one->conn = (__u64)conn;
	one->path = reply ? ROUTE_REPLY : 0;
}

/* The connection's packets leave by the next hop of `t`; `to` is where they go to once they are translated. */
static __always_inline void route_conn_commit(const struct route_tracked *t, const __u32 *to, bool v6)
{
	struct route_connection *one;

	/* A masqueraded connection whose way out is another one now goes up. */
	if (t->slot == ROUTE_NO_SLOT || t->nexthop >= ROUTE_NEXTHOPS || (t->masq_ifindex && t->masq_ifindex != t->d.ifindex))
		return;
	one = route_connection_at(t->slot);
	if (!one)
		return;
	one->to = route_address_digest(to, v6);
	one->path |= route_ingress(&t->d) << ROUTE_NEXTHOP_BITS | t->nexthop;
	one->digest = t->digest;
	one->generation = t->now;
}

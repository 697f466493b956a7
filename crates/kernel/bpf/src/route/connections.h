/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connections that conntrack named, remembered by each CPU until the generation changes, which is some seconds at the most. Nothing of them is
 * believed: the connection itself is read for each packet, without a search for it. Its memory holds connections alone until a moment after
 * the last of them has ended, and whatever is there by then is held against the packet's addresses and ports, and against the translation.
 */
#pragma once

#include "route/judge.h"

/* Connections of each CPU, a power of two, less one. */
const volatile __u32 route_connections_mask = 0;

#define ROUTE_NO_PLACE (~0U)
#define ROUTE_NEVER (~0ULL)

struct route_connection {
	__u64 generation;
	/* struct nf_conn */
	__u64 conn;
	__be32 ports;
	/* The way in << 8 | the protocol. */
	__u32 way;
	__be32 nat_ports;
	__u16 exit;
	__u8 is_nat;
	/* The direction of the connection's answers. */
	__u8 reply;
};

struct route_connection_v4 {
	__u32 from[1], to[1], nat_from[1], nat_to[1];
	struct route_connection rest;
	__u64 pad[2];
};

struct route_connection_v6 {
	__u32 from[4], to[4], nat_from[4], nat_to[4];
	struct route_connection rest;
	__u64 pad[4];
};

ROUTE_TABLE(struct route_connection_v4, route_conns_v4, 1);
ROUTE_TABLE(struct route_connection_v6, route_conns_v6, 1);

/* One of either version. */
struct route_place {
	__u32 *from, *to, *nat_from, *nat_to;
	struct route_connection *rest;
};

static __always_inline bool route_place_at(struct route_place *place, __u32 at, bool v6)
{
	if (v6) {
		struct route_connection_v6 *found = bpf_map_lookup_elem(&route_conns_v6, &at);

		if (!found)
			return false;
		*place = (struct route_place){ found->from, found->to, found->nat_from, found->nat_to, &found->rest };
	} else {
		struct route_connection_v4 *found = bpf_map_lookup_elem(&route_conns_v4, &at);

		if (!found)
			return false;
		*place = (struct route_place){ found->from, found->to, found->nat_from, found->nat_to, &found->rest };
	}
	return true;
}

static __always_inline bool route_are_same(const __u32 *a, const __u32 *b, bool v6)
{
	return a[0] == b[0] && (!v6 || (a[1] == b[1] && a[2] == b[2] && a[3] == b[3]));
}

static __always_inline void route_copy(__u32 *to, const __u32 *from, bool v6)
{
	to[0] = from[0];
	if (v6) {
		to[1] = from[1];
		to[2] = from[2];
		to[3] = from[3];
	}
}

static __always_inline bool route_place_is(const struct route_place *place, const struct route_key *k, __be32 ports, __u32 way, bool v6)
{
	return route_are_same(place->from, k->from, v6) && route_are_same(place->to, k->to, v6) && place->rest->ports == ports &&
	       place->rest->way == way;
}

/* Whether that memory holds, now, the connection of these packets, with the translation that was met. */
static __always_inline bool route_still_is(const struct nf_conn *conn, const struct route_place *place, const struct route_key *k,
					   const struct route_segment *s, bool v6)
{
	const struct nf_conntrack_tuple *own, *other;
	__u8 reply = place->rest->reply;

	own = reply ? &conn->tuplehash[1].tuple : &conn->tuplehash[0].tuple;
	other = reply ? &conn->tuplehash[0].tuple : &conn->tuplehash[1].tuple;
	if (!route_are_same(own->src.u3.all, k->from, v6) || !route_are_same(own->dst.u3.all, k->to, v6))
		return false;
	if ((own->src.u.all | (__u32)own->dst.u.all << 16) != s->ports || own->dst.protonum != k->protocol || own->dst.dir != reply)
		return false;
	if (!place->rest->is_nat)
		return !(conn->status & ROUTE_NAT);
	return conn->status & ROUTE_NAT && route_are_same(other->dst.u3.all, place->nat_from, v6) &&
	       route_are_same(other->src.u3.all, place->nat_to, v6) &&
	       (other->dst.u.all | (__u32)other->src.u.all << 16) == place->rest->nat_ports;
}

/* Whether the packet is of a connection that is known, with what becomes of it in `d`; if not, where the connection is to be remembered. */
static __always_inline bool route_knows(struct route_decision *d, struct route_key *k, const struct route_segment *s, bool v6)
{
	__u64 now = *(volatile __u64 *)&route_config.generation;
	__u32 way = route_way_in(d) << 8 | k->protocol, at;
	struct route_place place;
	struct route_exit *exit;
	struct nf_conn *conn;
	bool known;

	d->place = ROUTE_NO_PLACE;
	/* Packets of one connection may go different ways then. */
	if (k->by & (ROUTE_BY_TOS | ROUTE_BY_LABEL | ROUTE_FORGETS))
		return false;
	at = k->from[0] ^ k->to[0];
	if (v6)
		at ^= k->from[1] * 3 ^ k->from[2] * 5 ^ k->from[3] * 7 ^ k->to[1] * 11 ^ k->to[2] * 13 ^ k->to[3] * 17;
	at = route_own(route_hash((__u64)k->from[0] << 32 | at, (__u64)way << 32 | s->ports), route_connections_mask);
	if (!route_place_at(&place, at, v6))
		return false;
	known = route_place_is(&place, k, s->ports, way, v6);
	if (!known && place.rest->generation == now) {
		/* It is taken. The other one of the pair is looked at, and taken if both are. */
		at ^= 1;
		if (!route_place_at(&place, at, v6))
			return false;
		known = route_place_is(&place, k, s->ports, way, v6);
	}
	d->place = at;
	d->now = now;
	if (!known || place.rest->generation != now)
		return false;
	conn = bpf_rdonly_cast((void *)place.rest->conn, bpf_core_type_id_kernel(struct nf_conn));
	if (!route_still_is(conn, &place, k, s, v6) || route_is_open(conn, s, conn->status) != ROUTE_FORWARDED)
		return false;
	/* What has no time left is the kernel's, and its time is written with the connection in hand. */
	if ((__s32)(conn->timeout - (__u32)bpf_jiffies64()) <= 0 || (!d->shadow && route_grants(conn, s)))
		return false;
	exit = route_exit_of(place.rest->exit);
	if (!exit)
		return false;
	d->is_known = true;
	d->end = ROUTE_TOO_BIG;
	if (d->ip_len > exit->mtu)
		return true;
	route_use(exit);
	route_take(d, exit);
	d->end = ROUTE_FORWARDED;
	if (place.rest->is_nat)
		d->end = route_set_nat(place.nat_from, place.nat_to, place.rest->nat_ports, d, k, s, v6);
	return true;
}

/* conntrack has named the packet's connection. */
static __always_inline void route_meets(struct route_decision *d, const struct route_key *k, const struct route_segment *s, struct nf_conn *conn,
					bool reply, bool v6)
{
	struct route_place place;

	if (d->place == ROUTE_NO_PLACE || !route_place_at(&place, d->place, v6))
		return;
	place.rest->generation = ROUTE_NEVER;
	place.rest->conn = (__u64)conn;
	place.rest->ports = s->ports;
	place.rest->way = route_way_in(d) << 8 | k->protocol;
	place.rest->reply = reply;
	route_copy(place.from, k->from, v6);
	route_copy(place.to, k->to, v6);
}

/* The connection's packets leave by the exit of `d`. */
static __always_inline void route_remembers(const struct route_decision *d, bool v6)
{
	struct route_place place;

	/* A masqueraded connection whose way out is another one now goes up. */
	if (d->place == ROUTE_NO_PLACE || d->exit >= ROUTE_EXITS || (d->leaves && d->leaves != d->ifindex) || !route_place_at(&place, d->place, v6))
		return;
	place.rest->exit = d->exit;
	place.rest->is_nat = d->nat != 0;
	if (d->nat) {
		place.rest->nat_ports = d->nat->ports;
		route_copy(place.nat_from, d->nat->from, v6);
		route_copy(place.nat_to, d->nat->to, v6);
	}
	place.rest->generation = d->now;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether a frame belongs to a connection that the operator's rules let be forwarded here. */
#pragma once

#include "route/conn_cache.h"

/* `left` bytes of the packet are behind its IP header, where `c` is. */
static __always_inline enum route_verdict route_track(struct xdp_md *ctx, struct cursor *c, struct route_tracked *t, struct route_key *k, __u32 left,
						  bool v6)
{
	struct bpf_ct_opts___old opts = { .netns_id = BPF_F_CURRENT_NETNS };
	struct bpf_sock_tuple tuple;
	struct route_segment s;
	enum route_verdict verdict;
	struct nf_conn *conn;
	__u32 ms;

	if (!route_parse_segment(&s, c, k->protocol, left, &verdict))
		return verdict;
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
	if (route_conn_lookup(t, k, &s, v6))
		return t->d.verdict;
	conn = bpf_xdp_ct_lookup(ctx, &tuple, v6 ? sizeof(tuple.ipv6) : sizeof(tuple.ipv4), &opts, sizeof(opts));
	if (!conn)
		return ROUTE_NO_CONNECTION;
	route_conn_insert(t, conn, opts.dir);
	verdict = route_check_conn(conn, t, k, &s, opts.dir, v6);
	/* In shadow the kernel itself sees the packet. One that must not be changed keeps its own time. */
	if (verdict == ROUTE_FORWARDED && !t->shadow && (ms = route_renewal_ms(conn, &s)))
		bpf_ct_change_timeout(conn, ms);
	bpf_ct_release(conn);
	return verdict;
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What of the kernel's connection tracking is read and called here. */
#pragma once

#include <bpf/bpf_core_read.h>

#include "lib/common.h"

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
		__u8 protonum;
		__u8 dir;
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

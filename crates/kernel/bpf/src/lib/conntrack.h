/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel's connections, looked up by what a frame has. The functions are a module's on most kernels: an object that calls them is refused where it
 * is not loaded, unless they are weak and the code that calls them is dead. */
#pragma once

#include "lib/common.h"

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

struct net;

struct nf_conntrack_zone {
	__u16 id;
} __attribute__((preserve_access_index));

struct nf_conn {
	__u32 timeout;
	struct nf_conntrack_zone zone;
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	struct {
		struct net *net;
	} ct_net;
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

/* struct bpf_ct_opts as Linux 6.0 to 6.9 have it; later ones take it too. */
struct bpf_ct_opts___old {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	/* IP_CT_DIR_ORIGINAL or IP_CT_DIR_REPLY. */
	__u8 dir;
	__u8 reserved[2];
};

extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple, __u32 tuple_len, struct bpf_ct_opts___old *opts,
					 __u32 opts_len) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *conn) __ksym __weak;

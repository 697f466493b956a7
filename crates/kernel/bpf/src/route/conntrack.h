/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What of the kernel's connection tracking is read and called here. */
#pragma once

#include <bpf/bpf_core_read.h>

#include "lib/conntrack.h"

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

#define ROUTE_ESTABLISHED_BITS (ROUTE_SEEN_REPLY | ROUTE_ASSURED | ROUTE_CONFIRMED)
#define ROUTE_CLOSING_BITS (ROUTE_DYING | ROUTE_TEMPLATE | ROUTE_NAT_CLASH)
#define ROUTE_SPECIAL_BITS (ROUTE_SEQ_ADJUST | ROUTE_HELPER | ROUTE_OFFLOAD)

extern int bpf_ct_change_timeout(struct nf_conn *conn, __u32 milliseconds) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

/* One of an array of the kernel's, whose size and order are the kernel's own. */
#define route_ext_at(ext, id) (bpf_core_enum_value_exists(enum nf_ct_ext_id, id) ? (ext)->offset[bpf_core_enum_value(enum nf_ct_ext_id, id)] : 0)

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts the generation up whenever the kernel changes what it would answer about next hops, by the kernel's own calls: so nothing that is
 * remembered outlives the change. Each program that this kernel lacks the function for is left out, and user space says so.
 */
#include "lib/common.h"
#include <stdbool.h>

#include <bpf/bpf_tracing.h>

#include "route/route.h"

/* Of include/net/neighbour.h. */
struct neighbour {
	__u8 nud_state;
	unsigned char ha[32];
} __attribute__((preserve_access_index));

#define NUD_VALID 0xde /* permanent, no ARP, reachable, probe, stale, delay */

struct route_config route_config SEC(".data.route") = {};

static __always_inline int changed(void)
{
	__sync_fetch_and_add(&route_config.generation, 1);
	return 0;
}

/* IPv4: after each change of a table, of a rule, and of an interface. */
SEC("fentry/rt_cache_flush")
int route_ipv4_changed(void *ctx)
{
	return changed();
}

SEC("fexit/fib_table_insert")
int route_ipv4_added(void *ctx)
{
	return changed();
}

SEC("fexit/fib_table_delete")
int route_ipv4_removed(void *ctx)
{
	return changed();
}

SEC("fexit/fib6_add")
int route_ipv6_added(void *ctx)
{
	return changed();
}

SEC("fexit/fib6_del")
int route_ipv6_removed(void *ctx)
{
	return changed();
}

/* IPv6: a new number for what was looked up before, for what changes no table (a rule, an interface, a next hop). */
SEC("fentry/fib6_update_sernum_upto_root")
int route_ipv6_changed(void *ctx)
{
	return changed();
}

/* A rule may make next hops depend on what they did not before: user space is to look first. */
SEC("fexit/fib_rules_event")
int route_rule_changed(void *ctx)
{
	return changed();
}

SEC("fexit/neigh_changeaddr")
int route_own_address_changed(void *ctx)
{
	return changed();
}

/* When a neighbour was about to change last, in ticks. */
__u64 route_neighbour_at;

/* Most updates only say that it is there still. */
static __always_inline bool moves(struct neighbour *n, const void *lladdr)
{
	__u16 new[ETH_ALEN / 2], old[ETH_ALEN / 2];

	if (!lladdr || bpf_probe_read_kernel(new, sizeof(new), lladdr) || bpf_probe_read_kernel(old, sizeof(old), n->ha))
		return lladdr;
	return new[0] != old[0] || new[1] != old[1] || new[2] != old[2];
}

SEC("tp_btf/neigh_update")
int BPF_PROG(route_neighbour_changes, struct neighbour *n, const void *lladdr, __u8 new)
{
	if (!(new & NUD_VALID) || !(n->nud_state & NUD_VALID) || moves(n, lladdr))
		*(volatile __u64 *)&route_neighbour_at = bpf_jiffies64();
	return 0;
}

SEC("tp_btf/neigh_update_done")
int BPF_PROG(route_neighbour_changed, struct neighbour *n)
{
	if (bpf_jiffies64() - *(volatile __u64 *)&route_neighbour_at <= 2)
		changed();
	return 0;
}

SEC("tp_btf/neigh_timer_handler")
int BPF_PROG(route_neighbour_timed_out, struct neighbour *n)
{
	if (!(n->nud_state & NUD_VALID))
		changed();
	return 0;
}

SEC("tp_btf/neigh_cleanup_and_release")
int BPF_PROG(route_neighbour_gone, struct neighbour *n)
{
	return changed();
}

char _license[] SEC("license") = "Dual BSD/GPL";

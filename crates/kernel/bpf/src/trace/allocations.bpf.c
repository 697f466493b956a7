/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory that packet work takes, by CPU: pages that come from the page allocator, pages that come new to a page pool, socket buffers that end.
 * Tracepoints only. In a steady state as many socket buffers end as are made, and an end is one event where there are a dozen ways to make one.
 *
 * The page allocator's own tracepoint does not fire for pages that a page pool takes in bulk; the pool's does, for each.
 *
 * Packet work is what runs in the network's soft interrupts, and in kernel threads: NAPI's, those of CPU maps, ksoftirqd. What programs allocate
 * on the same CPU does not count.
 */
#include "lib/common.h"
#include <stdbool.h>

#include <bpf/bpf_tracing.h>

/* NET_TX_SOFTIRQ and NET_RX_SOFTIRQ, include/linux/interrupt.h. */
#define NET_TX 2
#define NET_RX 3

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000

struct task_struct {
	unsigned int flags;
} __attribute__((preserve_access_index));

struct allocated {
	__u64 pages;
	__u64 pool_pages;
	__u64 buffers;
	__u64 in_softirq;
};

PER_CPU(struct allocated, allocations);

static __always_inline struct allocated *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&allocations, &zero);
}

static __always_inline bool is_packet_work(const struct allocated *cpu)
{
	return cpu->in_softirq || (bpf_get_current_task_btf()->flags & PF_KTHREAD);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int vector)
{
	struct allocated *cpu = this_cpu();

	if (cpu && (vector == NET_RX || vector == NET_TX))
		cpu->in_softirq = 1;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int vector)
{
	struct allocated *cpu = this_cpu();

	if (cpu && (vector == NET_RX || vector == NET_TX))
		cpu->in_softirq = 0;
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(page_allocated, const void *page, unsigned int order)
{
	struct allocated *cpu = this_cpu();

	if (page && cpu && is_packet_work(cpu))
		cpu->pages += 1ULL << (order & 31);
	return 0;
}

SEC("tp_btf/page_pool_state_hold")
int BPF_PROG(page_in_pool)
{
	struct allocated *cpu = this_cpu();

	if (cpu && is_packet_work(cpu))
		cpu->pool_pages++;
	return 0;
}

static __always_inline int buffer_ended(void)
{
	struct allocated *cpu = this_cpu();

	if (cpu && is_packet_work(cpu))
		cpu->buffers++;
	return 0;
}

SEC("tp_btf/consume_skb")
int BPF_PROG(buffer_consumed)
{
	return buffer_ended();
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(buffer_dropped)
{
	return buffer_ended();
}

char _license[] SEC("license") = "Dual BSD/GPL";

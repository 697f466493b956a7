/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What each NAPI instance costs: nanoseconds of CPU, packets, polls, per CPU; and which interrupt schedules it, because only
 * kernels from 6.8 on list that, and only for drivers that say it. Tracepoints only, so that no function of the kernel is
 * patched.
 *
 * A CPU does one thing after another. So each CPU keeps a mark: the moment from which the time belongs to the next poll
 * that ends. The mark is set when the network receive softirq begins, when a poll ends, and when the CPU switches to another
 * task (a NAPI thread that wakes up); time spent in hard interrupts meanwhile is taken out by moving the mark. The
 * tracepoint napi_poll fires at the end of each poll. Polls that a system call makes (busy polling) count as polls, but
 * their time belongs to the caller.
 */
#include "lib/common.h"
#include "lib/net_device.h"
#include <bpf/bpf_tracing.h>

struct napi_struct {
	struct net_device *dev;
	unsigned int napi_id;
} __attribute__((preserve_access_index));

/* NET_RX_SOFTIRQ, include/linux/interrupt.h. */
#define NET_RX 3

/* What one instance cost on one CPU since the programs were attached. */
struct napi_cost {
	__u64 ns;
	__u64 packets;
	__u64 polls;
	/* Polls that used up their budget: more packets were waiting. */
	__u64 full_polls;
	__u32 napi_id;
	__u32 ifindex;
	/* The interrupt that schedules it, as seen on this CPU; 0: not seen without doubt. */
	__u32 irq;
	/* The network namespace (inode number): an ifindex is unique only within it. */
	__u32 netns;
};

/* At most this many instances are watched; polls of those beyond are counted in `untracked`. */
#define MAX_NAPIS 4096

/* The instance's address is the key: its id is 0 without busy polling (transmit instances). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_NAPIS);
	__type(key, __u64);
	__type(value, struct napi_cost);
} costs SEC(".maps");

struct per_cpu {
	/* The time from here on belongs to the next poll that ends. */
	__u64 mark_ns;
	__u64 irq_began_ns;
	/* The instance that was polled first in this softirq. */
	__u64 polled;
	/* The interrupt whose handler runs; 0: none. */
	__u32 irq;
	/* The last interrupt that raised the receive softirq, and how many did since the last one began. */
	__u32 raised_by;
	__u32 raised;
	/* It was raised from elsewhere too: a poll was left over, or another CPU asked. */
	__u32 raised_elsewhere;
	/* The only interrupt that can have scheduled the instance polled in this softirq; 0: not certain. */
	__u32 suspect;
	__u32 in_softirq;
	/* More than one instance was polled in this softirq. */
	__u32 several;
	__u32 pad;
};

PER_CPU(struct per_cpu, here);

/* Polls that found no room in `costs`. */
__u64 untracked;

static __always_inline struct per_cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&here, &zero);
}

static __always_inline struct napi_cost *cost_of(__u64 key)
{
	struct napi_cost *cost = bpf_map_lookup_elem(&costs, &key);
	struct napi_cost fresh = {};

	if (cost)
		return cost;
	bpf_map_update_elem(&costs, &key, &fresh, BPF_NOEXIST);
	cost = bpf_map_lookup_elem(&costs, &key);
	if (!cost)
		__sync_fetch_and_add(&untracked, 1);
	return cost;
}

/* The kernel names its NAPI threads napi/<interface>-<id>. */
static __always_inline int is_napi_thread(void)
{
	char comm[16] = {};

	if (bpf_get_current_comm(comm, sizeof(comm)))
		return 0;
	return comm[0] == 'n' && comm[1] == 'a' && comm[2] == 'p' && comm[3] == 'i' && comm[4] == '/';
}

SEC("tp_btf/napi_poll")
int BPF_PROG(poll_ended, struct napi_struct *napi, int work, int budget)
{
	struct per_cpu *cpu = this_cpu();
	struct net_device *dev = napi->dev;
	__u64 now = bpf_ktime_get_ns(), key = (__u64)napi;
	struct napi_cost *cost = cost_of(key);

	if (!cpu)
		return 0;
	if (cost) {
		if (cpu->mark_ns && now > cpu->mark_ns && (cpu->in_softirq || is_napi_thread()))
			cost->ns += now - cpu->mark_ns;
		cost->polls++;
		if (work > 0)
			cost->packets += work;
		if (work >= budget)
			cost->full_polls++;
		cost->napi_id = napi->napi_id;
		if (dev) {
			cost->ifindex = dev->ifindex;
			cost->netns = dev->nd_net.net->ns.inum;
		}
	}
	cpu->mark_ns = now;
	if (cpu->in_softirq) {
		if (!cpu->polled)
			cpu->polled = key;
		else if (cpu->polled != key)
			cpu->several = 1;
	}
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int vector)
{
	struct per_cpu *cpu = this_cpu();

	if (!cpu || vector != NET_RX)
		return 0;
	cpu->suspect = cpu->raised == 1 && !cpu->raised_elsewhere ? cpu->raised_by : 0;
	cpu->raised = 0;
	cpu->raised_elsewhere = 0;
	cpu->polled = 0;
	cpu->several = 0;
	cpu->in_softirq = 1;
	cpu->mark_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int vector)
{
	struct per_cpu *cpu = this_cpu();
	struct napi_cost *cost;
	__u64 key;

	if (!cpu || vector != NET_RX)
		return 0;
	if (cpu->suspect && cpu->polled && !cpu->several) {
		key = cpu->polled;
		cost = bpf_map_lookup_elem(&costs, &key);
		if (cost)
			cost->irq = cpu->suspect;
	}
	cpu->in_softirq = 0;
	cpu->mark_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raised, unsigned int vector)
{
	struct per_cpu *cpu = this_cpu();

	if (!cpu || vector != NET_RX)
		return 0;
	if (cpu->irq) {
		cpu->raised_by = cpu->irq;
		cpu->raised++;
	} else {
		cpu->raised_elsewhere = 1;
	}
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_begins, int irq)
{
	struct per_cpu *cpu = this_cpu();

	if (cpu) {
		cpu->irq = irq;
		cpu->irq_began_ns = bpf_ktime_get_ns();
	}
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_ends, int irq)
{
	struct per_cpu *cpu = this_cpu();

	if (cpu) {
		cpu->irq = 0;
		if (cpu->mark_ns && cpu->irq_began_ns)
			cpu->mark_ns += bpf_ktime_get_ns() - cpu->irq_began_ns;
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(task_switched)
{
	struct per_cpu *cpu = this_cpu();

	if (cpu)
		cpu->mark_ns = bpf_ktime_get_ns();
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

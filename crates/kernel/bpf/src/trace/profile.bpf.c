/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What each CPU does, sampled: runs at every tick of a clock event that user space opened per CPU, and counts how often the
 * same thing was seen. The stack itself is part of the key, so that two stacks are never taken for one.
 *
 * Whether a soft interrupt is being served, the stack tells by the names in it (handle_softirqs, before 6.10 __do_softirq).
 * The kernel's own count of it (preempt_count) is a per-CPU variable, which a program finds only in kernels built with
 * KALLSYMS_ALL.
 *
 * Two tables take turns: `active` holds the one that counts. User space puts the other one there; when that call returns no
 * program uses the old one any more (kernel/bpf/syscall.c, maybe_wait_bpf_programs), and it is read and emptied in peace.
 */
#include "lib/common.h"
#include <linux/bpf_perf_event.h>

/* The kernel's own limit (kernel.perf_event_max_stack), and perf's. */
#define MAX_FRAMES 127
/* Different things seen between two readings; samples of those beyond are counted as lost. */
#define MAX_KEYS 16384

/* What was seen. */
struct seen {
	__u32 cpu;
	/* The process; 0: the idle task. */
	__u32 pid;
	/* The CPU ran a program, not the kernel: there are no frames. */
	__u32 user;
	__u32 pad;
	char comm[16];
	/* Innermost frame first; 0 behind the last. */
	__u64 frames[MAX_FRAMES];
};

struct counts {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_KEYS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct seen);
	__type(value, __u64);
};

struct counts counts_a SEC(".maps");
struct counts counts_b SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct counts);
} active SEC(".maps") = { .values = { [0] = &counts_a } };

/* Of one CPU, since the start. */
struct taken {
	__u64 samples;
	/* The kernel could not walk the stack. */
	__u64 no_stack;
	/* The table was full, or the kernel had no memory for the entry. */
	__u64 no_room;
};

PER_CPU(struct taken, taken);

/* Where a key is put together: too large for the stack of a program. The clock does not interrupt itself. */
PER_CPU(struct seen, scratch);

SEC("perf_event")
int sample_cpu(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct seen *seen = bpf_map_lookup_elem(&scratch, &zero);
	struct taken *here = bpf_map_lookup_elem(&taken, &zero);
	void *counts = bpf_map_lookup_elem(&active, &zero);
	__u64 one = 1, *count;
	long bytes;

	if (!seen || !here || !counts)
		return 0;
	here->samples++;
	/* Fills up with zeros. */
	bytes = bpf_get_stack(ctx, seen->frames, sizeof(seen->frames), 0);
	if (bytes < 0) {
		here->no_stack++;
		return 0;
	}
	seen->cpu = bpf_get_smp_processor_id();
	seen->pid = bpf_get_current_pid_tgid() >> 32;
	seen->user = bytes == 0;
	/* Linux 6.1 writes nothing behind the end of the name: the rest would be that of the task before, and one task two keys. */
	__builtin_memset(seen->comm, 0, sizeof(seen->comm));
	bpf_get_current_comm(seen->comm, sizeof(seen->comm));
	count = bpf_map_lookup_elem(counts, seen);
	if (count)
		/* Only this CPU counts here: the CPU is in the key. */
		++*count;
	else if (bpf_map_update_elem(counts, seen, &one, BPF_NOEXIST))
		here->no_room++;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

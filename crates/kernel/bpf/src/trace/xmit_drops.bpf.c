/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames that a device refused when they were redirected to it, from the tracepoint xdp_devmap_xmit, which fires once per
 * bulk (kernel/bpf/devmap.c). A veth counts them too, but with one counter per receiving queue that all senders
 * write without a lock, so that it loses some of its counts when two CPUs send into one queue.
 */
#include "lib/common.h"
#include "lib/net_device.h"
#include <bpf/bpf_tracing.h>

/* The device, by index and network namespace (inode number). */
const volatile int xmit_ifindex = 0;
const volatile __u32 xmit_netns = 0;

PER_CPU(__u64, xmit_refused);

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(on_xmit, const struct net_device *from, const struct net_device *to, int sent, int drops, int err)
{
	__u32 key = 0;
	__u64 *refused;

	if (drops <= 0 || to->ifindex != xmit_ifindex || to->nd_net.net->ns.inum != xmit_netns)
		return 0;
	refused = bpf_map_lookup_elem(&xmit_refused, &key);
	if (refused)
		*refused += drops;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where the kernel drops socket buffers and why, from the tracepoint skb:kfree_skb; and what XDP loses, from the
 * tracepoints of xdp. What is counted and how much of it is looked at: trace/drops/gate.h.
 */
#include "lib/common.h"
#include "trace/drops/details.h"
#include "trace/drops/gate.h"
#include "trace/drops/packet.h"
#include "lib/sk_buff.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct bpf_prog_aux {
	__u32 id;
} __attribute__((preserve_access_index));

struct bpf_prog {
	struct bpf_prog_aux *aux;
} __attribute__((preserve_access_index));

/* Drops are told apart by this. */
struct drop_key {
	/* The instruction that dropped. */
	__u64 location;
	/* The socket: cookie and inode number; 0: none, or not known. */
	__u64 socket;
	__u64 inode;
	/* The network namespace, as inode number, and the interface within it. */
	__u32 netns;
	__u32 ifindex;
	__u32 reason;
	/* EtherType in host order. */
	__u16 protocol;
	/* The socket is that which would have received; otherwise that which sent, or that the packet was meant for early. */
	__u8 receiver;
	/* One of DROP_… (trace/drops/packet.h). */
	__u8 kind;
};

struct drop_value {
	/* Socket buffers. */
	__u64 packets;
	/* Packets on the wire: a buffer can hold several (GRO, GSO). */
	__u64 segments;
	__u64 bytes;
	/* The last one that was looked at, and when. */
	__u64 at_ns;
	struct drop_flow last;
};

#define XDP_EXCEPTION 1
#define XDP_REDIRECT_ERR 2
#define XDP_DEVMAP_XMIT 3
#define XDP_BULK_TX 4
#define XDP_CPUMAP_ENQUEUE 5
#define XDP_CPUMAP_KTHREAD 6
#define XDP_CPUMAP_PROGRAM 7

struct xdp_loss_key {
	/* One of the numbers above. */
	__u32 kind;
	__u32 program;
	/* XDP_EXCEPTION: the verdict. */
	__u32 action;
	__u32 netns;
	__u32 ifindex;
	/* Where the frame was to go: interface, or CPU, or index in the map. */
	__u32 target;
	__u32 map;
	__s32 error;
};

/* How many combinations are told apart; beyond it, drops are told apart without their socket, and what finds no room then
 * either is counted in drop_cpu.untracked. */
#define MAX_DROPS 4096
#define MAX_WITHOUT_SOCKET 2048
#define MAX_XDP_LOSSES 512

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_DROPS);
	__type(key, struct drop_key);
	__type(value, struct drop_value);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_WITHOUT_SOCKET);
	__type(key, struct drop_key);
	__type(value, struct drop_value);
} no_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_XDP_LOSSES);
	__type(key, struct xdp_loss_key);
	__type(value, __u64);
} xdp_losses SEC(".maps");

/* An interface that was asked for; 0: all of the namespace. */
struct wanted_key {
	__u32 netns;
	__u32 ifindex;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct wanted_key);
	__type(value, __u8);
} wanted SEC(".maps");

/* Other than 0: only what `wanted` names. */
const volatile __u32 drop_only_wanted = 0;
/* The tracepoint says which socket would have received (kernels from 6.11 on). */
const volatile __u32 drop_has_socket = 0;

/* Inode numbers of namespaces begin here (include/linux/proc_ns.h). */
#define FIRST_NAMESPACE 0xeffffff0U

/* The one reason that must be known here; its number changes between kernels. */
enum skb_drop_reason {
	SKB_DROP_REASON_OTHERHOST = 5,
};

/* struct sock is whole, not a small stand-in for one. */
#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

static __always_inline __u32 netns_of(const struct net_device *dev)
{
	return dev->nd_net.net->ns.inum;
}

static __always_inline int is_wanted(__u32 netns, __u32 ifindex)
{
	struct wanted_key key = { netns, ifindex };

	if (bpf_map_lookup_elem(&wanted, &key))
		return 1;
	key.ifindex = 0;
	return bpf_map_lookup_elem(&wanted, &key) != 0;
}

/*
 * A packet socket is the owner both of what it sends and of the copies that wait for its reader. A copy is received: it came in by an
 * interface, or stands in the books of the receiver.
 */
static __always_inline int is_copy(struct sk_buff *skb, struct sock *receiver)
{
	return receiver || !skb->dev;
}

/*
 * The device, its namespace, the socket. The kernel uses the room of skb->dev for other things while a packet waits in a
 * socket (dev_scratch, rbnode), so that it is believed only if what it points to has a namespace. A socket is read through
 * the fault-proof helper alone, because the verifier of some kernels takes it for never NULL.
 */
static __always_inline void identify(struct drop_key *key, struct sk_buff *skb, struct sock *receiver)
{
	const struct net_device *dev = skb->dev;
	struct sock *sk = receiver;
	struct socket *socket;
	__u8 state;

	if (dev) {
		key->netns = netns_of(dev);
		key->ifindex = dev->ifindex;
		if (key->netns < FIRST_NAMESPACE)
			key->netns = key->ifindex = 0;
	}
	if (!key->ifindex)
		key->ifindex = skb->skb_iif;
	if (!sk)
		sk = skb->sk;
	if (!sk)
		return;
	if (!key->netns)
		key->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (!key->socket)
		key->socket = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_PACKET && is_copy(skb, receiver))
		key->kind = DROP_COPY;
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV)
		return;
	socket = BPF_CORE_READ(sk, sk_socket);
	if (socket)
		key->inode = BPF_CORE_READ((struct socket_alloc *)socket, vfs_inode.i_ino);
}

static __always_inline __u32 segments_of(struct sk_buff *skb)
{
	struct skb_shared_info *info = (void *)(skb->head + skb->end);
	__u16 size = BPF_CORE_READ(info, gso_size), segments;

	if (!size)
		return 1;
	segments = BPF_CORE_READ(info, gso_segs);
	return segments ? segments : (skb->len + size - 1) / size;
}

static __always_inline struct drop_value *value_of(void *map, const struct drop_key *key)
{
	struct drop_value *value = bpf_map_lookup_elem(map, key);
	struct drop_value fresh = {};

	if (value)
		return value;
	bpf_map_update_elem(map, key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}

static __always_inline void count_drop(struct drop_cpu *cpu, struct drop_key *key, __u64 weight, struct sk_buff *skb,
				       const struct drop_flow *flow, __u64 now)
{
	struct drop_value *value = value_of(&drops, key);

	if (!value) {
		cpu->without_socket += weight;
		key->socket = key->inode = 0;
		key->receiver = 0;
		value = value_of(&no_sockets, key);
	}
	if (!value) {
		cpu->untracked += weight;
		return;
	}
	value->packets += weight;
	value->segments += weight * segments_of(skb);
	value->bytes += weight * skb->len;
	value->at_ns = now;
	value->last = *flow;
}

static __always_inline int is_other_host(__u32 reason)
{
	return bpf_core_enum_value_exists(enum skb_drop_reason, SKB_DROP_REASON_OTHERHOST) &&
	       reason == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_OTHERHOST);
}

static __always_inline void detail_drop(void *ctx, const struct drop_key *key, struct sk_buff *skb, const struct drop_flow *flow,
					__u64 weight)
{
	struct detail_key of = {
		.location = key->location,
		.netns = key->netns,
		.ifindex = key->ifindex,
		.reason = key->reason,
		.protocol = key->protocol,
		.kind = key->kind,
		.flow = *flow,
	};

	of.flow.source_port = 0;
	keep_details(ctx, &of, skb, weight);
}

/* Apart, so that an event that passes does not even set up what a look needs. */
static __noinline int look_at_drop(__u64 *ctx, struct drop_cpu *cpu, struct drop_slot *slot)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct drop_key key = { .location = ctx[1], .reason = ctx[2] };
	struct drop_flow flow = {};
	struct sock *receiver = 0;
	__u64 begin = bpf_ktime_get_ns(), weight = drop_weight(slot, begin);

	key.protocol = bpf_ntohs(skb->protocol);
	if (drop_has_socket) {
		receiver = (void *)ctx[3];
		key.socket = bpf_get_socket_cookie(receiver);
		key.receiver = key.socket != 0;
	}
	key.kind = look_into(&flow, skb);
	if (is_other_host(key.reason) && is_for_device(skb))
		key.kind = DROP_FOREIGN_VLAN;
	else if (!flow.version && is_link_local(skb))
		key.kind = DROP_LINK_LOCAL;
	identify(&key, skb, receiver);
	if (drop_only_wanted && !is_wanted(key.netns, key.ifindex) && !is_wanted(key.netns, skb->skb_iif)) {
		cpu->filtered += weight;
	} else {
		count_drop(cpu, &key, weight, skb, &flow, begin);
		if (drop_details)
			detail_drop(ctx, &key, skb, &flow, weight);
	}
	drop_settle(cpu, slot, begin);
	return 0;
}

SEC("tp_btf/kfree_skb")
int on_drop(__u64 *ctx)
{
	struct drop_cpu *cpu = drop_this_cpu();
	__u32 reason = ctx[2], index = reason < SLOT_OTHER ? reason : SLOT_OTHER;
	struct drop_slot *slot;

	if (!cpu)
		return 0;
	slot = &cpu->slots[index];
	return drop_gate(slot) ? look_at_drop(ctx, cpu, slot) : 0;
}

static __always_inline void count_loss(struct drop_cpu *cpu, const struct xdp_loss_key *key, __u64 frames)
{
	__u64 *value, fresh = 0;

	if (drop_only_wanted && key->ifindex && !is_wanted(key->netns, key->ifindex)) {
		cpu->filtered += frames;
		return;
	}
	value = bpf_map_lookup_elem(&xdp_losses, key);
	if (!value) {
		bpf_map_update_elem(&xdp_losses, key, &fresh, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&xdp_losses, key);
	}
	if (value)
		*value += frames;
	else
		cpu->untracked += frames;
}

/* A loss that is told for each frame: counted only where the gate lets a look through. */
static __always_inline int look_at_loss(__u32 slot_number, struct xdp_loss_key key, const struct net_device *dev,
					const struct bpf_prog *prog)
{
	struct drop_cpu *cpu = drop_this_cpu();
	struct drop_slot *slot;
	__u64 begin;

	if (!cpu)
		return 0;
	slot = &cpu->slots[slot_number];
	if (!drop_gate(slot))
		return 0;
	begin = bpf_ktime_get_ns();
	key.program = BPF_CORE_READ(prog, aux, id);
	key.netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	key.ifindex = BPF_CORE_READ(dev, ifindex);
	count_loss(cpu, &key, drop_weight(slot, begin));
	drop_settle(cpu, slot, begin);
	return 0;
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(on_exception, const struct net_device *dev, const struct bpf_prog *prog, __u32 action)
{
	struct xdp_loss_key key = { .kind = XDP_EXCEPTION, .action = action };

	return look_at_loss(SLOT_XDP_EXCEPTION, key, dev, prog);
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(on_redirect_err, const struct net_device *dev, const struct bpf_prog *prog, const void *to, int error, int map_type,
	     __u32 map, __u32 index)
{
	struct xdp_loss_key key = { .kind = XDP_REDIRECT_ERR, .error = error, .target = index, .map = map };

	return look_at_loss(SLOT_XDP_REDIRECT_ERR, key, dev, prog);
}

/* The four below fire once per bulk of frames, so that counting all of them costs little. */

static __always_inline int count_bulk(__u32 kind, const struct net_device *from, const struct net_device *to, int dropped, int error)
{
	struct xdp_loss_key key = { .kind = kind, .error = error };
	struct drop_cpu *cpu;

	if (dropped <= 0)
		return 0;
	cpu = drop_this_cpu();
	if (!cpu)
		return 0;
	key.netns = BPF_CORE_READ(from, nd_net.net, ns.inum);
	key.ifindex = BPF_CORE_READ(from, ifindex);
	key.target = from == to ? key.ifindex : BPF_CORE_READ(to, ifindex);
	count_loss(cpu, &key, dropped);
	return 0;
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(on_devmap_xmit, const struct net_device *from, const struct net_device *to, int sent, int dropped, int error)
{
	return count_bulk(XDP_DEVMAP_XMIT, from, to, dropped, error);
}

SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(on_bulk_tx, const struct net_device *dev, int sent, int dropped, int error)
{
	return count_bulk(XDP_BULK_TX, dev, dev, dropped, error);
}

SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(on_cpumap_enqueue, int map, unsigned int processed, unsigned int dropped, int to_cpu)
{
	struct drop_cpu *cpu;
	struct xdp_loss_key key = { .kind = XDP_CPUMAP_ENQUEUE, .map = map, .target = to_cpu };

	if (!dropped)
		return 0;
	cpu = drop_this_cpu();
	if (cpu)
		count_loss(cpu, &key, dropped);
	return 0;
}

/* From Linux 5.9 on: what the program of the CPU map did with the frames of this bulk. */
struct xdp_cpumap_stats {
	unsigned int drop;
} __attribute__((preserve_access_index));

SEC("tp_btf/xdp_cpumap_kthread")
int BPF_PROG(on_cpumap_kthread, int map, unsigned int processed, unsigned int no_buffer, int sched, struct xdp_cpumap_stats *stats)
{
	struct xdp_loss_key key = { .kind = XDP_CPUMAP_KTHREAD, .map = map };
	__u32 by_program = BPF_CORE_READ(stats, drop);
	struct drop_cpu *cpu;

	if (!no_buffer && !by_program)
		return 0;
	key.target = bpf_get_smp_processor_id();
	cpu = drop_this_cpu();
	if (!cpu)
		return 0;
	if (no_buffer)
		count_loss(cpu, &key, no_buffer);
	key.kind = XDP_CPUMAP_PROGRAM;
	if (by_program)
		count_loss(cpu, &key, by_program);
	return 0;
}

/* Never attached: run by BPF_PROG_TEST_RUN, these tell what an event costs that is not looked at, and what a look costs for its
 * own account. */

SEC("socket")
int pass_cost(struct __sk_buff *skb)
{
	struct drop_cpu *cpu = drop_this_cpu();

	return cpu ? drop_gate(&cpu->slots[SLOT_CALIBRATION]) : 0;
}

SEC("socket")
int look_cost(struct __sk_buff *skb)
{
	struct drop_cpu *cpu = drop_this_cpu();
	struct drop_slot *slot;
	__u64 begin;

	if (!cpu)
		return 0;
	slot = &cpu->slots[SLOT_CALIBRATION];
	drop_gate(slot);
	begin = bpf_ktime_get_ns();
	drop_weight(slot, begin);
	drop_settle(cpu, slot, begin);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What AF_PACKET and AF_XDP sockets have received and lost, read without touching them: PACKET_STATISTICS is set back by
 * whoever reads it, sock_diag tells nothing of a ring's losses, and many kernels lack AF_XDP's sock_diag. A walk over the open
 * files of all processes writes one row for each such socket. What an owner takes away by asking is added up beside the
 * socket. */

#include "lib/common.h"
#include <bpf/bpf_core_read.h>

#include "lib/net_device.h"

#define AF_PACKET 17
#define AF_XDP 44
#define SOL_PACKET 263
#define PACKET_STATISTICS 6

struct ring_socket {
	__u64 cookie;
	__u64 inode;
	__u64 received;
	__u64 lost;
	__u64 no_room;
	__u64 no_fill;
	__u32 netns;
	__u32 pid;
	__u32 ifindex;
	__u32 queue;
	__u32 family;
	__u32 ring_blocks;
	char comm[16];
};

/* Puts the layout of a row into the skeleton. */
const volatile struct ring_socket ring_socket_layout = {};

/* Counts of a socket that its owner has read since this program runs: the kernel resets them at each read. */
struct read_stats {
	__u64 received;
	__u64 lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct read_stats);
} read_stats SEC(".maps");

typedef struct {
	int counter;
} __attribute__((preserve_access_index)) atomic_t;

typedef struct {
	__s64 counter;
} __attribute__((preserve_access_index)) atomic64_t;

struct sock_common {
	unsigned short skc_family;
	possible_net_t skc_net;
	atomic64_t skc_cookie;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct socket {
	struct sock *sk;
} __attribute__((preserve_access_index));

struct inode {
	unsigned long i_ino;
} __attribute__((preserve_access_index));

struct file {
	struct inode *f_inode;
} __attribute__((preserve_access_index));

struct task_struct {
	int tgid;
	struct task_struct *group_leader;
	char comm[16];
} __attribute__((preserve_access_index));

struct tpacket_stats {
	unsigned int tp_packets;
} __attribute__((preserve_access_index));

union tpacket_stats_u {
	struct tpacket_stats stats1;
} __attribute__((preserve_access_index));

struct packet_ring_buffer {
	unsigned int pg_vec_len;
} __attribute__((preserve_access_index));

struct packet_sock {
	union tpacket_stats_u stats;
	struct packet_ring_buffer rx_ring;
	int ifindex;
	atomic_t tp_drops;
} __attribute__((preserve_access_index));

struct xsk_queue {
	__u64 queue_empty_descs;
} __attribute__((preserve_access_index));

struct xsk_buff_pool {
	struct xsk_queue *fq;
} __attribute__((preserve_access_index));

struct xdp_sock {
	struct net_device *dev;
	struct xsk_buff_pool *pool;
	__u16 queue_id;
	__u64 rx_dropped;
	__u64 rx_queue_full;
} __attribute__((preserve_access_index));

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
} __attribute__((preserve_access_index));

static __always_inline void packet(struct ring_socket *row, struct sock *sk)
{
	struct packet_sock *po = (struct packet_sock *)sk;
	struct read_stats *before;

	row->ifindex = BPF_CORE_READ(po, ifindex);
	row->ring_blocks = BPF_CORE_READ(po, rx_ring.pg_vec_len);
	row->received = BPF_CORE_READ(po, stats.stats1.tp_packets);
	row->lost = (__u32)BPF_CORE_READ(po, tp_drops.counter);
	before = bpf_sk_storage_get(&read_stats, sk, 0, 0);
	if (before) {
		row->received += before->received;
		row->lost += before->lost;
	}
}

static __always_inline void xdp(struct ring_socket *row, struct sock *sk)
{
	struct xdp_sock *xs = (struct xdp_sock *)sk;

	row->ifindex = BPF_CORE_READ(xs, dev, ifindex);
	row->queue = BPF_CORE_READ(xs, queue_id);
	row->lost = BPF_CORE_READ(xs, rx_dropped);
	row->no_room = BPF_CORE_READ(xs, rx_queue_full);
	row->no_fill = BPF_CORE_READ(xs, pool, fq, queue_empty_descs);
}

SEC("iter/task_file")
int list_rings(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct ring_socket row = {};
	struct socket *socket;
	struct sock *sk;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	row.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (row.family == AF_PACKET && bpf_core_type_exists(struct packet_sock))
		packet(&row, sk);
	else if (row.family == AF_XDP && bpf_core_type_exists(struct xdp_sock))
		xdp(&row, sk);
	else
		return 0;
	row.cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	row.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	row.inode = BPF_CORE_READ(file, f_inode, i_ino);
	row.pid = BPF_CORE_READ(task, tgid);
	BPF_CORE_READ_STR_INTO(&row.comm, task, group_leader, comm);
	bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
	return 0;
}

/* Runs behind every getsockopt(2), with what the kernel is about to tell: for a ring, the packets (the lost ones among them) and
 * the losses since the last time. */
SEC("cgroup/getsockopt")
int on_getsockopt(struct bpf_sockopt *ctx)
{
	__u32 *statistics = ctx->optval;
	struct read_stats *sum;

	if (ctx->level != SOL_PACKET || ctx->optname != PACKET_STATISTICS || ctx->retval < 0)
		return 1;
	if ((void *)(statistics + 2) > ctx->optval_end || !ctx->sk)
		return 1;
	sum = bpf_sk_storage_get(&read_stats, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (sum) {
		__sync_fetch_and_add(&sum->received, statistics[0] - statistics[1]);
		__sync_fetch_and_add(&sum->lost, statistics[1]);
	}
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Refuses options of AF_PACKET to everybody but root on the sockets of one network namespace, those that a broker gives to programs of other users.
 * Rings of a packet socket are memory of the kernel's that no limit of its holder counts, and each membership is an entry of a list without an end.
 * The broker has set what is needed before it gives a socket away. 32-bit programs come by here, too, which a program of a control group does not see. */
#include "lib/common.h"

#include <bpf/bpf_tracing.h>

/* Of include/net/sock.h and its kin. */
struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct sock_common {
	possible_net_t skc_net;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct socket {
	struct sock *sk;
} __attribute__((preserve_access_index));

#define SOL_PACKET 263
#define EPERM 1

/* The number of that namespace (SO_NETNS_COOKIE). */
const volatile __u64 namespace_cookie = 0;

SEC("fmod_ret/security_socket_setsockopt")
int BPF_PROG(guard_options, struct socket *sock, int level, int optname, int ret)
{
	if (ret || level != SOL_PACKET || sock->sk->__sk_common.skc_net.net->net_cookie != namespace_cookie)
		return ret;
	return (__u32)bpf_get_current_uid_gid() ? -EPERM : 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

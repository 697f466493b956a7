/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The parts of a socket buffer and of a socket that tell who lost what. Fields are found at load time (CO-RE). */
#pragma once

#include "lib/net_device.h"

struct inode {
	unsigned long i_ino;
} __attribute__((preserve_access_index));

struct socket;

/* The socket comes first, so that its address is that of the whole (include/net/sock.h). */
struct socket_alloc {
	struct inode vfs_inode;
} __attribute__((preserve_access_index));

typedef struct {
	__s64 counter;
} __attribute__((preserve_access_index)) atomic64_t;

struct sock_common {
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	atomic64_t skc_cookie;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	__u16 protocol;
	int skb_iif;
	unsigned int tail;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
	__u16 network_header;
	__u16 mac_header;
} __attribute__((preserve_access_index));

/* Behind the buffer, at head + end. */
struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
} __attribute__((preserve_access_index));

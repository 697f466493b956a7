/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What tells a network device: its index, and the namespace in which that index is unique. Fields are found at load time (CO-RE). */
#pragma once

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
	const unsigned char *dev_addr;
} __attribute__((preserve_access_index));

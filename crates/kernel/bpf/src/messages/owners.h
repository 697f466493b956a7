/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who has the ports of a node: one map, which all programs that ask share. */
#pragma once

#include "lib/common.h"

#define LINK_ETHERTYPE 0x88B5

/* By port, in the order of the wire: its owner, of whom 0 has what nobody else has. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} port_owners SEC(".maps");

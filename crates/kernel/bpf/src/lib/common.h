/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What every program here includes: uapi types and libbpf's helpers. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define CACHE_LINE 64

/* A map with one value for each CPU, under key 0. */
#define PER_CPU(value_type, name) \
	struct { \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, 1); \
		__type(key, __u32); \
		__type(value, value_type); \
	} name SEC(".maps")

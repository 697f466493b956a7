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

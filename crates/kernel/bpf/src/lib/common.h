/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What every program here includes: uapi types, libbpf helpers, a bounds-checked cursor. */
#ifndef EVENKEEL_COMMON_H
#define EVENKEEL_COMMON_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define CACHE_LINE 64

/* A reading position in a frame. Parsers move it and return NULL when the frame ends before the header does. */
struct cursor {
	void *pos;
	void *end;
};

static __always_inline void *cursor_take(struct cursor *c, __u32 bytes)
{
	void *at = c->pos;

	if (at + bytes > c->end)
		return 0;
	c->pos = at + bytes;
	return at;
}

#endif

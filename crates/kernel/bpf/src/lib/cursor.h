/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A bounds-checked cursor. */
#pragma once

#include "lib/common.h"

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

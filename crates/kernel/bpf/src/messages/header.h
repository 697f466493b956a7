/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The header of docs/protocol/link.md. */
#pragma once

#include "lib/common.h"

#define LINK_VERSION 1

enum link_kind {
	LINK_DATA,
	LINK_PROBE,
	LINK_ACK,
	LINK_OPEN,
	LINK_OPEN_ACK,
	LINK_RESET,
	LINK_BUSY,
	LINK_HELLO,
	LINK_KINDS,
};

struct link_header {
	/* The version in the upper four bits. */
	__u8 version_kind;
	__u8 flags;
	/* Of the payload. */
	__be16 length;
	__be16 from_port;
	__be16 to_port;
	__be32 connection;
	__be32 epoch;
	__be32 sequence;
	__be32 acknowledged;
	__be32 received;
	__be16 credit;
	__be16 checksum;
};

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* clang: -mcpu=v3 */
/*
 * The protocol of docs/protocol/link.md: frames go to the ring of the port that they are for; a probe of the node itself is answered here. What is
 * for a port that nobody has goes up to the stack, where a broker's socket answers it.
 */
#include "lib/common.h"

#include "messages/header.h"

#define LINK_ETHERTYPE 0x88B5
#define LINK_HEADER struct link_header
#include "messages/hooks.h"

/* Frames have their checksums looked at. */
const volatile bool link_checked = true;
/* Probes of the node are answered: the interface can send what it has just received. */
const volatile bool link_answers = true;

/* This protocol's own reasons. */
enum { UNKNOWN_KIND };

static __always_inline __u32 link_validate(struct link_frame *f, const struct link_header *h)
{
	/* Ports are where they are in every version: their owner tells the sender that it speaks another one, and hears it. */
	if (h->version_kind >> 4 != LINK_VERSION) {
		f->bytes = f->left;
		return LINK_DELIVER;
	}
	if ((h->version_kind & 15) >= LINK_KINDS)
		return LINK_DROP(UNKNOWN_KIND);
	f->bytes = sizeof(*h) + bpf_ntohs(h->length);
	return LINK_DELIVER;
}

static __always_inline __u32 link_endpoint(const struct link_header *h)
{
	return bpf_ntohs(h->to_port);
}

static __always_inline __u32 link_handle(struct xdp_md *ctx, struct link_frame *f, struct link_header *h)
{
	__be16 port = h->from_port, before = *(__be16 *)h;

	if (h->version_kind >> 4 != LINK_VERSION)
		return LINK_DELIVER;
	if (link_checked && !link_is_whole(ctx, f))
		return LINK_CHECKSUM;
	if (!link_answers || h->to_port || h->connection || (h->version_kind & 15) != LINK_PROBE)
		return LINK_DELIVER;
	h->version_kind = LINK_VERSION << 4 | LINK_ACK;
	/* That the ports change places does not change the sum. */
	h->from_port = h->to_port;
	h->to_port = port;
	h->checksum = link_mend(h->checksum, before, *(__be16 *)h);
	return LINK_ANSWER;
}

LINK_PROGRAM(ek_link)

char _license[] SEC("license") = "Dual BSD/GPL";

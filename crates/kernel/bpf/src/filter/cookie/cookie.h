/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * TCP SYNs answered in place of the server, without any state per SYN.
 *
 * Host mode: a SYN to a listener is answered by a SYN-ACK whose sequence number is a cookie (filter/cookie/number.h). An ACK that belongs to no
 * connection must carry a right one; it is marked (struct shield_ack) and goes on to the program in filter/shield_ack.bpf.c, which
 * makes the connection of it. What the client offered is in the low bits of the timestamp that it sends back.
 *
 * Where no program can make connections (shield_ack needs a kernel and a driver that can), the kernel does, out of its own check of the ACK: the
 * listener has to accept cookies before, which it takes only while its queue is full, or if net.ipv4.tcp_syncookies is 2. Until then SYNs pass. Cookies are
 * the kernel's there.
 * No timestamps are offered, whose low bits the kernel would read otherwise, and so neither window scaling nor SACK.
 *
 * Gateway mode: the SYN of an unknown source is answered by a SYN-ACK that acknowledges a number which the client never sent: the
 * cookie of its addresses and ports. A client answers with a RST of just that number (RFC 9293, 3.10.7.3) and goes on waiting; a
 * source that sent such a RST is known, and its packets pass. The SYN is written over that RST, from a small memory of the last ones, and passes.
 *
 * Sources mode: the same for this machine itself, where a cookie would not do: where netfilter has rules, which have to meet the SYN
 * and the SYN-ACK of every connection, where the kernel or the driver cannot make connections of cookies, and where packets are forwarded,
 * whose connections are made elsewhere. The second SYN goes to the kernel, which makes the connection by itself or forwards it.
 *
 * An answer is never longer than its question by more than the 4 bytes of the MSS option that every SYN-ACK has (a factor of 1.06 at
 * most, 1 for frames of least size), and there is at most one.
 *
 * What a client and an administrator notice:
 * - Host: a cookie lasts one minute or two. A client whose ACK was lost, or found the listener's queue full, gets in with the
 *   data that it sends next. What this machine forwards passes (where it forwards, a challenge works in sources mode); but the listener has
 *   to be in the interface's network namespace: what is sent on to another one by NAT (containers) looks as if it were for this machine, and
 *   must not be challenged here. Without timestamps
 *   only the MSS is kept, as with the kernel's cookies. Data in a SYN (TCP Fast Open) is not acknowledged, so that it comes again. Frames
 *   with two tags, and ACKs in fragments, make no connection this way: SYNs with two tags pass where a VLAN device within another takes them, and are dropped elsewhere. A SYN's checksum is not looked at. ACKs to a listener without a
 *   right cookie get no RST.
 * - Gateway: the first connection of a source takes two more packets, and the time of a round trip. A client whose SYN is not remembered any more, or whose
 *   RST comes when the cookie is over, tries again: Linux after some 10 ms, others after their retransmission time, a second or more. A firewall before the
 *   client that drops what it thinks invalid keeps it out; Linux's connection tracking thinks so before 6.2. Who can see a known source's address can spoof it.
 */
#pragma once

#include "filter/cookie/gateway.h"
#include "filter/cookie/host.h"

/* Whether a VLAN device of this machine takes the packet's tag, if it has one. A priority tag is nobody's, and is taken off. */
static __always_inline bool cookie_takes_tag(const struct packet *p)
{
	if (!cookie_mac_known || cookie_any_tag || !p->vlan || p->vlan >= VLAN_NONE)
		return true;
	return cookie_tags[p->vlan >> 6 & 63] >> (p->vlan & 63) & 1;
}

/* A global function: verified once, by itself, and not for each way that leads to it. */
__noinline int shield_challenge_packet(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct shield_cookie_cpu *cpu;
	struct packet *p;
	struct ethhdr *eth = data;
	struct tcphdr *tcp;
	__u32 zero = 0;

	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu)
		return XDP_ABORTED;
	p = &cpu->work.packet;
	if (p->protocol != IPPROTO_TCP || !p->has_flags)
		return -1;
	tcp = apart(data, low_bits(p->transport_at, SHIELD_AT_MASK));
	if ((void *)(tcp + 1) > end || (void *)(eth + 1) > end)
		return -1;
	/* A group of hosts: TCP is not for them, and the stack ignores it. */
	if (eth->h_dest[0] & 1)
		return -1;
	/* Nor is it from them: an answer would go to all. */
	if (eth->h_source[0] & 1) {
		cpu->count.odd++;
		return XDP_DROP;
	}
	if (cookie_mode == SHIELD_COOKIE_GATEWAY)
		return cookie_gateway(ctx, p, cpu, tcp);
	if (cookie_mac_known) {
		int i;

		for (i = 0; i < 6; i++)
			if (eth->h_dest[i] != cookie_mac[i])
				return -1;
	}
	if (cookie_mode == SHIELD_COOKIE_SOURCES) {
		if (!cookie_takes_tag(p))
			return -1;
		if (cookie_no_destination(p) || cookie_to_itself(p)) {
			cpu->count.odd++;
			return XDP_DROP;
		}
		return cookie_gateway(ctx, p, cpu, tcp);
	}
	/* Two tags: the stack's tc hook sees such a frame with one tag still on, where no connection can be made of it. */
	if (p->ip_at > sizeof(*eth) + 4) {
		if (cookie_two_tags || (p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN)
			return -1;
		cpu->count.odd++;
		return XDP_DROP;
	}
	if (!cookie_takes_tag(p))
		return -1;
	return cookie_host(ctx, p, cpu, tcp);
}

/* Whether a packet may be the RST of a source that was challenged. */
static __always_inline bool shield_may_verify(const struct packet *p)
{
	if (cookie_mode != SHIELD_COOKIE_GATEWAY && cookie_mode != SHIELD_COOKIE_SOURCES)
		return false;
	return p->protocol == IPPROTO_TCP && p->has_flags && (p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_RST;
}

/*
 * Whether a packet that a rule drops is the RST of a source that was challenged; then it has become the SYN that was stored, and may pass: no rule dropped
 * that one. Rules against packets of no connection would keep out whoever has to send such a RST.
 */
static __always_inline bool shield_source_verified(struct xdp_md *ctx, const struct packet *p)
{
	struct shield_cookie_cpu *cpu;
	struct cookie_pending *pending;
	__u64 hash;
	__u32 zero = 0;

	if (!shield_may_verify(p))
		return false;
	hash = connected_hash(p) | 1;
	pending = cookie_pending_at(hash);
	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!pending || pending->hash != hash || !cpu)
		return false;
	cpu->work.packet = *p;
	return shield_challenge_packet(ctx) == COOKIE_RESUMED;
}

/* What becomes of a packet that a rule challenges: an XDP action, or negative: it may pass. */
static __always_inline int shield_challenge(struct xdp_md *ctx, const struct packet *p)
{
	struct shield_cookie_cpu *cpu;
	__u32 zero = 0;

	if (cookie_mode == SHIELD_COOKIE_OFF)
		return -1;
	cpu = bpf_map_lookup_elem(&cookie_counts, &zero);
	if (!cpu)
		return XDP_ABORTED;
	cpu->work.packet = *p;
	return shield_challenge_packet(ctx);
}

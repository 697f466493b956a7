/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What both modes of SYN cookies have in common: settings, counters, what is worked with, and the cookie itself. */
#pragma once

#include "lib/parse.h"
#include "filter/cookie/ack.h"
#include "filter/cookie/connected.h"
#include "filter/cookie/number.h"
#include "filter/cookie/reply.h"

enum shield_cookie_mode { SHIELD_COOKIE_OFF, SHIELD_COOKIE_HOST, SHIELD_COOKIE_GATEWAY, SHIELD_COOKIE_SOURCES };

/* enum shield_cookie_mode. */
const volatile __u32 cookie_mode = SHIELD_COOKIE_OFF;
/* The interface sends by bpf_redirect instead of XDP_TX: a veth, whose peer takes XDP_TX only while it runs an XDP program itself. */
const volatile bool cookie_by_redirect = false;
/* Host and sources mode: the MAC address that packets for this host have; frames to others are left alone. Only if cookie_mac_known. */
const volatile __u8 cookie_mac[6] = {};
const volatile bool cookie_mac_known = false;
/* Host mode: TCP to ports without listener or connection is dropped instead of passed to the stack. */
const volatile bool cookie_drop_unlistened = false;
/* Host mode: timestamps are offered, and with them what follows. Needs shield_ack. */
const volatile bool cookie_timestamps = true;
/* Host mode: SYNs with two VLAN tags are for somebody here, and pass. */
const volatile bool cookie_two_tags = false;
/* Host and sources mode, where cookie_mac_known: TCP with a tag of no VLAN device of this machine passes unanswered. Else the ids of those, by bits. */
const volatile bool cookie_any_tag = true;
const volatile __u64 cookie_tags[64] = {};
/* The kernel's settings: net.ipv4.tcp_sack, tcp_window_scaling, tcp_ecn. */
const volatile bool cookie_sack = true;
const volatile bool cookie_scaling = true;
const volatile bool cookie_ecn = true;
/* The MSS that the SYN-ACK names, per family, and its window (not scaled) in bytes. */
const volatile __u16 cookie_mss_v4 = 1460;
const volatile __u16 cookie_mss_v6 = 1440;
const volatile __u16 cookie_window = 64240;
/* Shift of the windows that follow. */
const volatile __u8 cookie_wscale = 7;
/* Host mode without shield_ack: the kernel makes the connections of right ACKs by itself, from listeners that accept cookies. */
const volatile bool cookie_by_kernel = false;
/* Where struct tcp_sock has is_mptcp, in bytes; 0: nowhere. */
const volatile __u16 cookie_mptcp_at = 0;
/* Gateway and sources mode: seconds that a source stays known after its last SYN. */
const volatile __u32 cookie_known_s = 600;
/* Likewise: 2^this seconds are not fewer than cookie_known_s. */
const volatile __u8 cookie_generation_shift = 10;
/* Sources mode: until then (CLOCK_MONOTONIC in ns) ACKs with right cookies are let in: handshakes that host mode began. 0: none. */
const volatile __u64 cookie_until_ns = 0;
/* Gateway mode: packets other than SYNs of unknown sources are dropped instead of passed. */
const volatile bool cookie_strict = false;

/* What one CPU did. */
struct shield_cookie_count {
	/* SYNs answered: host mode with a cookie, gateway and sources mode with a question. */
	__u64 answered;
	/* ACKs with a right cookie, and dropped ones. */
	__u64 right;
	__u64 wrong;
	/* Right, but the driver takes no mark (bpf_xdp_adjust_meta): dropped. */
	__u64 unmarked;
	/* To no connection and no listener. */
	__u64 unlistened;
	/* SYNs to listeners of MPTCP, for which no connection can be made of a cookie: left to the kernel. */
	__u64 multipath;
	/* SYNs, SYN-ACKs, RSTs and so on that a listener would ignore: dropped. */
	__u64 odd;
	/* SYNs that could not be answered (the frame could not be resized, the helper failed): dropped. */
	__u64 failed;
	/* Gateway and sources: sources that became known; SYNs of known sources; dropped packets of unknown ones. */
	__u64 proved;
	/* Of those: whose SYN went on at once. */
	__u64 resumed;
	__u64 known;
	__u64 unknown;
};

/* What is worked with, here rather than on the stack: the caller's frame is large already. */
struct shield_cookie_work {
	struct packet packet;
	struct shield_ack ack;
	struct shield_offer offer;
	struct shield_reply reply;
	/* What the kernel's cookies are made of. */
	union {
		struct iphdr ip;
		struct ipv6hdr ip6;
	};
	struct tcphdr tcp;
	__u8 mss_kind, mss_len;
	__be16 mss;
	struct bpf_sock_tuple tuple;
	struct bpf_fib_lookup route;
};

struct shield_cookie_cpu {
	struct shield_cookie_count count;
	struct connected_listener listeners[CONNECTED_LISTENERS];
	/* Those that accept cookies. */
	struct connected_listener by_cookie[CONNECTED_LISTENERS];
	struct connected_recent recent;
	struct shield_cookie_work work;
};

PER_CPU(struct shield_cookie_cpu, cookie_counts);

/* Always 0, which the verifier does not know: loops over options then have the same state in each round. */
__u32 cookie_zero;

/* An address that nobody may send from: multicast, none, loopback, IPv4's broadcast, IPv4 within IPv6. */
static __always_inline bool cookie_no_source(const struct packet *p)
{
	__u8 first = p->source[0];

	if (p->family == 4)
		return (first & 0xf0) == 0xe0 || first == 127 || first == 0 || p->source[0] == 0xffffffff;
	if (first == 0xff)
		return true;
	return !p->source[0] && !p->source[1] && (p->source[2] == bpf_htonl(0xffff) || !p->source[2]);
}

/* An address that nobody connects to: a group, all, nobody, this machine by its own word alone. */
static __always_inline bool cookie_no_destination(const struct packet *p)
{
	__u8 first = p->destination[0];

	if (p->family == 4)
		return (first & 0xf0) == 0xe0 || first == 127 || first == 0 || p->destination[0] == 0xffffffff;
	if (first == 0xff)
		return true;
	return !p->destination[0] && !p->destination[1] && !p->destination[2];
}

static __always_inline bool cookie_to_itself(const struct packet *p)
{
	return p->source_port == p->destination_port && p->source[0] == p->destination[0] && p->source[1] == p->destination[1] &&
	       p->source[2] == p->destination[2] && p->source[3] == p->destination[3];
}

static __always_inline int cookie_back(struct xdp_md *ctx)
{
	return cookie_by_redirect ? (int)bpf_redirect(ctx->ingress_ifindex, 0) : XDP_TX;
}

/* The kernel's cookies are made of a packet from client to server; here it is. They are for connections that the kernel makes. */
static __always_inline void cookie_addresses(struct shield_cookie_work *w, const struct packet *p)
{
	if (p->family == 4) {
		w->ip.saddr = p->source[0];
		w->ip.daddr = p->destination[0];
	} else {
		__builtin_memcpy(&w->ip6.saddr, p->source, 16);
		__builtin_memcpy(&w->ip6.daddr, p->destination, 16);
	}
	w->tcp.source = bpf_htons(p->source_port);
	w->tcp.dest = bpf_htons(p->destination_port);
}

/* The SYN that the kernel's cookie is made of, with an MSS alone. */
static __always_inline void cookie_syn(struct shield_cookie_work *w, const struct packet *p, __be32 seq, __u16 mss)
{
	cookie_addresses(w, p);
	w->tcp.seq = seq;
	/* Its length in words, and the SYN bit. */
	((__be16 *)&w->tcp)[6] = bpf_htons(6 << 12 | TCP_SYN);
	w->mss_kind = 2;
	w->mss_len = 4;
	w->mss = bpf_htons(mss);
}

/* The kernel's cookie: in the low 32 bits the number, above it the MSS that it stands for. Negative when the kernel has no cookies. */
static __always_inline __s64 cookie_make(struct shield_cookie_work *w, const struct packet *p, __be32 seq, __u16 mss)
{
	cookie_syn(w, p, seq, mss);
	if (p->family == 4)
		return bpf_tcp_raw_gen_syncookie_ipv4(&w->ip, &w->tcp, sizeof(w->tcp) + 4);
	return bpf_tcp_raw_gen_syncookie_ipv6(&w->ip6, &w->tcp, sizeof(w->tcp) + 4);
}

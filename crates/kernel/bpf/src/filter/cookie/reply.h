/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The answer to a SYN, written over it; and what of the SYN's options the answer's timestamp remembers. */
#pragma once

#include "lib/parse.h"
#include "lib/verifier.h"

/* More than any header begins at: 8 extension headers of at most 2048 bytes. Lets the verifier see that offsets are small. */
#define SHIELD_AT_MASK 0x7fff
/* Bytes that a frame grows by at most: those of all options of TCP, with room. */
#define SHIELD_GROW_MAX 64
/* Ethernet and two tags. */
#define SHIELD_BEFORE_IP 22
/* A frame on the wire is no shorter, less its FCS. */
#define SHIELD_FRAME_MIN 60

/* The timestamp of a SYN-ACK: the client's window shift, whether it does SACK and ECN, the number of its MSS. */
#define SHIELD_STAMP_WSCALE 0x0f
#define SHIELD_STAMP_SACK 0x10
#define SHIELD_STAMP_ECN 0x20
#define SHIELD_STAMP_MSS 0x3c0
#define SHIELD_STAMP_MSS_SHIFT 6
#define SHIELD_STAMP_MASK 0x3ff

/* What a SYN offers. Timestamps as on the wire. */
struct shield_offer {
	__be32 tsval;
	__be32 tsecr;
	/* 0: not said. */
	__u16 mss;
	__u8 timestamps;
	__u8 sack;
	/* SHIELD_NO_WSCALE: none. */
	__u8 wscale;
	__u8 pad[3];
};

/* Words of the options of a SYN-ACK, and of those that a TCP header can have. */
#define SHIELD_REPLY_WORDS 5
#define SHIELD_OPTION_WORDS 10

/* A SYN-ACK, or a SYN. All but the lengths as on the wire. */
struct shield_reply {
	__be32 seq;
	__be32 ack;
	__be32 words[SHIELD_OPTION_WORDS];
	__be16 window;
	__u8 flags;
	/* Bytes of `words` that are sent: a multiple of 4. */
	__u8 options;
};

/* The MSS values that a timestamp can remember; what the client says is rounded down to one, but not below the first. */
const __u16 shield_mss[16] = { 536,  1024, 1220, 1240, 1300, 1340, 1360, 1380,
				      1400, 1420, 1432, 1440, 1448, 1452, 1460, 8940 };
/* Those of cookies, the kernel's (msstab of net/ipv4/syncookies.c and net/ipv6/syncookies.c) and ours. */
const __u16 shield_kernel_mss_v4[4] = { 536, 1300, 1440, 1460 };
const __u16 shield_kernel_mss_v6[4] = { 1220, 1420, 1440, 8940 };

static __always_inline __u32 shield_mss_number(__u16 mss)
{
	__u32 i, at = 0;

#pragma unroll
	for (i = 8; i; i >>= 1)
		if (mss >= shield_mss[(at + i) & 15])
			at += i;
	return at & 15;
}

static __always_inline __u16 shield_mss_of(__u32 number)
{
	return shield_mss[number & 15];
}

static __always_inline __u16 shield_kernel_mss(__u8 family, __u32 number)
{
	return family == 4 ? shield_kernel_mss_v4[number & 3] : shield_kernel_mss_v6[number & 3];
}

/* The number of the largest of them that is not above `mss`. */
static __always_inline __u32 shield_kernel_mss_number(__u8 family, __u16 mss)
{
	if (family == 4)
		return (mss >= 1300) + (mss >= 1440) + (mss >= 1460);
	return (mss >= 1420) + (mss >= 1440) + (mss >= 8940);
}

static __always_inline __u16 cookie_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Copies some 16-bit words, their numbers constants. Forwards: the places may overlap. */
#define COPY_WORDS(to, from, first, behind)                                                                                                                    \
	do {                                                                                                                                                   \
		_Pragma("unroll") for (__u32 word_ = (first); word_ < (behind); word_++)(to)[word_] = (from)[word_];                                          \
	} while (0)

/* Makes a frame longer at its front, where drivers leave 256 bytes, as they need not at its end. What is before its IP header stays there. */
static __always_inline bool cookie_grow(struct xdp_md *ctx, __u32 by, __u32 ip_at)
{
	__u16 *to, *from;
	void *end;

	if (by > SHIELD_GROW_MAX || bpf_xdp_adjust_head(ctx, -(int)by))
		return false;
	to = (void *)(long)ctx->data;
	from = apart(to, low_bits(by, 2 * SHIELD_GROW_MAX - 1));
	end = (void *)(long)ctx->data_end;
	/* Whatever is written over it is longer. */
	if ((void *)to + SHIELD_BEFORE_IP > end || (void *)from + SHIELD_BEFORE_IP > end)
		return false;
	/* Ethernet, and each tag. Linux 6.1 does not follow a loop here. */
	COPY_WORDS(to, from, 0, 7);
	if (ip_at >= sizeof(struct ethhdr) + 4)
		COPY_WORDS(to, from, 7, 9);
	if (ip_at >= sizeof(struct ethhdr) + 8)
		COPY_WORDS(to, from, 9, 11);
	return true;
}

/*
 * Writes a packet over `p`, as the answer to it (`back`: MAC addresses, addresses and ports change places) or in its place: tags stay, IP options, extension
 * headers and data go. It has no more than `words` words of options. The TCP checksum is made anew: that of a SYN from this machine (veth) need not be there
 * yet.
 */
static __always_inline bool cookie_write(struct xdp_md *ctx, const struct packet *p, const struct shield_reply *reply, bool back, __u32 words)
{
	const __u32 *from = back ? p->destination : p->source, *to = back ? p->source : p->destination;
	__u32 ip_at = p->ip_at & 0x3f, ip_len = p->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 tcp_len = sizeof(struct tcphdr) + reply->options, wanted, i;
	/* What a driver has put behind the packet, into another buffer, stays there. */
	__u32 old = p->frame_len;
	__u64 sum = bpf_htons(IPPROTO_TCP) + bpf_htons(tcp_len);
	__be32 ports, offset_and_window;
	struct ethhdr *eth;
	__u8 mac[ETH_ALEN];
	void *data, *end;
	__be32 *tcp;

	wanted = ip_at + ip_len + tcp_len;
	if (wanted < SHIELD_FRAME_MIN && old >= SHIELD_FRAME_MIN)
		wanted = SHIELD_FRAME_MIN;
	if (!back && wanted > old) {
		if (!cookie_grow(ctx, wanted - old, ip_at))
			return false;
	} else if (wanted != old && bpf_xdp_adjust_tail(ctx, (int)wanted - (int)old)) {
		return false;
	}
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	eth = data;
	if ((void *)(eth + 1) > end)
		return false;
	if (back) {
		__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
		__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
		__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	}
	if (p->family == 4) {
		__be32 *ip = data + ip_at;
		__u64 ip_sum;

		if ((void *)(ip + 5) > end)
			return false;
		ip[0] = bpf_htonl(0x45000000 | (sizeof(struct iphdr) + tcp_len));
		ip[1] = bpf_htonl(0x00004000);
		ip[3] = from[0];
		ip[4] = to[0];
		sum += (__u64)ip[3] + ip[4];
		ip_sum = (__u64)ip[0] + ip[1] + ip[3] + ip[4] + bpf_htonl(0x40000000 | IPPROTO_TCP << 16);
		ip[2] = bpf_htonl(0x40000000 | IPPROTO_TCP << 16);
		((__u16 *)ip)[5] = cookie_fold(ip_sum);
		tcp = ip + 5;
	} else {
		__be32 *ip = data + ip_at;

		if ((void *)(ip + 10) > end)
			return false;
		ip[0] = bpf_htonl(0x60000000);
		ip[1] = bpf_htonl(tcp_len << 16 | IPPROTO_TCP << 8 | 64);
#pragma unroll
		for (i = 0; i < 4; i++) {
			ip[2 + i] = from[i];
			ip[6 + i] = to[i];
			sum += (__u64)from[i] + to[i];
		}
		tcp = ip + 10;
	}
	if ((void *)(tcp + 5) > end)
		return false;
	ports = back ? bpf_htonl((__u32)p->destination_port << 16 | p->source_port) : bpf_htonl((__u32)p->source_port << 16 | p->destination_port);
	offset_and_window = bpf_htonl((tcp_len / 4) << 28 | reply->flags << 16) | (__be32)reply->window << 16;
	tcp[0] = ports;
	tcp[1] = reply->seq;
	tcp[2] = reply->ack;
	tcp[3] = offset_and_window;
	tcp[4] = 0;
	sum += (__u64)ports + reply->seq + reply->ack + offset_and_window;
#pragma unroll
	for (i = 0; i < words; i++) {
		if (reply->options <= i * 4)
			break;
		if ((void *)(tcp + 6 + i) > end)
			return false;
		tcp[5 + i] = reply->words[i];
		sum += reply->words[i];
	}
	((__u16 *)tcp)[8] = cookie_fold(sum);
	return true;
}

/* Writes the answer to `p` over it. */
static __always_inline bool cookie_reply(struct xdp_md *ctx, const struct packet *p, const struct shield_reply *reply)
{
	return cookie_write(ctx, p, reply, true, SHIELD_REPLY_WORDS);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A frame's bytes to a packet. Nothing is believed: what does not fit into the frame, or contradicts itself, is
 * malformed. The same in Rust: crates/words/rules/src/packet.rs; tests hold the two together. */
#pragma once

#include <stdbool.h>

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include "lib/cursor.h"

#define EXTENSIONS_MAX 8
/* linux/in6.h and linux/icmpv6.h do not go with linux/in.h everywhere. */
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_UDPLITE 136
#define MORE_FRAGMENTS 0x2000
#define FRAGMENT_OFFSET 0x1fff

/* Flags of TCP. */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_ECE 0x40
#define TCP_CWR 0x80

#define VLAN_NONE 4096
#define DETAIL_NONE 768

/* What parsing found. */
enum parsed { PARSED_IP, PARSED_NOT_IP, PARSED_MALFORMED };

enum fragment { FRAGMENT_NONE, FRAGMENT_FIRST, FRAGMENT_LATER };

/* A packet as programs look at it. Numbers in host order, addresses as on the wire. */
struct packet {
	/* IPv4 in the first word. */
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
	/* IPv4's total length, IPv6's payload length plus 40, at most 65,535. */
	__u16 len;
	/* VLAN id of the outermost tag, or VLAN_NONE. */
	__u16 vlan;
	/* 4 or 6. */
	__u8 family;
	/* Behind all extension headers. */
	__u8 protocol;
	/* Of TCP; the type of ICMP and ICMPv6 likewise. */
	__u8 flags;
	/* enum fragment. */
	__u8 fragment;
	__u8 dscp;
	/* It has ports: TCP, UDP, UDP-Lite, SCTP or DCCP, and not a later fragment. */
	bool has_ports;
	/* `flags` was read. */
	bool has_flags;
	__u8 pad;
	/* Where the IP header and the transport header begin, in bytes from the start of the frame. */
	__u16 ip_at;
	__u16 transport_at;
	/* EtherType behind the tags. */
	__u16 ethertype;
	/* The flags of TCP; 256 and the type of ICMP; 512 and that of ICMPv6; DETAIL_NONE. */
	__u16 detail;
	/* Of the frame without FCS. */
	__u32 frame_len;
};

struct vlan_tag {
	__be16 id;
	__be16 ethertype;
};

static __always_inline bool is_tag(__u16 ethertype)
{
	return ethertype == ETH_P_8021Q || ethertype == ETH_P_8021AD;
}

/* Of the whole frame, all its buffers. The helper is called only where the first buffer is not enough. */
static __always_inline bool frame_holds(struct xdp_md *ctx, const struct packet *p, __u32 bytes)
{
	return p->frame_len >= bytes || bpf_xdp_get_buff_len(ctx) >= bytes;
}

/* Of the IP packet in a frame that is longer than its length fields can say, which then are 0 (BIG TCP: only packets that the stack has merged, or that
 * are still to be cut); 0: it is not. The frame's length is known then. */
static __always_inline __u32 big_packet(struct xdp_md *ctx, struct packet *p)
{
	__u32 frame_len = bpf_xdp_get_buff_len(ctx);

	if (frame_len <= (__u32)p->ip_at + 0xffff)
		return 0;
	p->frame_len = frame_len;
	return frame_len - p->ip_at;
}

/* Ports, flags and types; `left` is what the IP packet has from the transport header on. */
static __always_inline enum parsed parse_transport(struct packet *p, struct cursor c, __u32 left)
{
	struct tcphdr *tcp;
	__be16 *ports;
	__u8 *bytes;
	__u32 need;

	switch (p->protocol) {
	case IPPROTO_TCP:
		tcp = cursor_take(&c, sizeof(*tcp));
		if (!tcp || left < sizeof(*tcp))
			return PARSED_MALFORMED;
		bytes = (__u8 *)tcp;
		need = (bytes[12] >> 4) * 4;
		if (need < sizeof(*tcp) || need > left)
			return PARSED_MALFORMED;
		p->source_port = bpf_ntohs(tcp->source);
		p->destination_port = bpf_ntohs(tcp->dest);
		p->has_ports = true;
		p->has_flags = true;
		p->flags = bytes[13];
		p->detail = bytes[13];
		return PARSED_IP;
	case IPPROTO_UDP:
	case PROTOCOL_UDPLITE:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		need = p->protocol == IPPROTO_UDP || p->protocol == PROTOCOL_UDPLITE ? 8 : 4;
		ports = cursor_take(&c, 2 * sizeof(*ports));
		if (!ports || left < need)
			return PARSED_MALFORMED;
		p->source_port = bpf_ntohs(ports[0]);
		p->destination_port = bpf_ntohs(ports[1]);
		p->has_ports = true;
		return PARSED_IP;
	case IPPROTO_ICMP:
	case PROTOCOL_ICMPV6:
		if ((p->protocol == IPPROTO_ICMP) != (p->family == 4))
			return PARSED_IP;
		bytes = cursor_take(&c, 4);
		if (!bytes || left < 4)
			return PARSED_MALFORMED;
		p->has_flags = true;
		p->flags = bytes[0];
		p->detail = (p->family == 4 ? 256 : 512) + bytes[0];
		return PARSED_IP;
	default:
		return PARSED_IP;
	}
}

static __always_inline enum parsed parse_ipv4(struct xdp_md *ctx, struct packet *p, struct cursor c)
{
	struct iphdr *ip = cursor_take(&c, sizeof(*ip));
	__u32 header, len;
	__u16 offset;

	if (!ip || ip->version != 4)
		return PARSED_MALFORMED;
	header = ip->ihl * 4;
	len = bpf_ntohs(ip->tot_len);
	if (!len)
		len = big_packet(ctx, p);
	if (header < sizeof(*ip) || len < header || !frame_holds(ctx, p, p->ip_at + len))
		return PARSED_MALFORMED;
	p->family = 4;
	p->source[0] = ip->saddr;
	p->destination[0] = ip->daddr;
	p->len = len > 0xffff ? 0xffff : len;
	p->protocol = ip->protocol;
	p->dscp = ip->tos >> 2;
	p->transport_at = p->ip_at + header;
	offset = bpf_ntohs(ip->frag_off);
	if (offset & FRAGMENT_OFFSET) {
		p->fragment = FRAGMENT_LATER;
		return PARSED_IP;
	}
	if (offset & MORE_FRAGMENTS)
		p->fragment = FRAGMENT_FIRST;
	c.pos = (void *)ip + header;
	return parse_transport(p, c, len - header);
}

/* Extension headers that are walked: hop-by-hop options, routing, fragment, authentication, destination options (RFC 8200). */
static __always_inline bool is_extension(__u8 header)
{
	return header == IPPROTO_HOPOPTS || header == IPPROTO_ROUTING || header == IPPROTO_FRAGMENT ||
	       header == IPPROTO_AH || header == IPPROTO_DSTOPTS;
}

static __always_inline enum parsed parse_ipv6(struct xdp_md *ctx, struct packet *p, struct cursor c)
{
	struct ipv6hdr *ip = cursor_take(&c, sizeof(*ip));
	__u32 len, left, header, i;
	__u8 *bytes;

	if (!ip || ip->version != 6)
		return PARSED_MALFORMED;
	left = bpf_ntohs(ip->payload_len);
	len = left + sizeof(*ip);
	if (!left) {
		len = big_packet(ctx, p);
		if (len < sizeof(*ip))
			len = sizeof(*ip);
		left = len - sizeof(*ip);
	}
	if (!frame_holds(ctx, p, p->ip_at + len))
		return PARSED_MALFORMED;
	p->family = 6;
	__builtin_memcpy(p->source, &ip->saddr, sizeof(p->source));
	__builtin_memcpy(p->destination, &ip->daddr, sizeof(p->destination));
	p->len = len > 0xffff ? 0xffff : len;
	p->protocol = ip->nexthdr;
	p->dscp = ip->priority << 2 | ip->flow_lbl[0] >> 6;
	p->transport_at = p->ip_at + sizeof(*ip);
#pragma clang loop unroll(disable)
	for (i = 0; i < EXTENSIONS_MAX && is_extension(p->protocol); i++) {
		bytes = cursor_take(&c, 8);
		if (!bytes)
			return PARSED_MALFORMED;
		if (p->protocol == IPPROTO_FRAGMENT)
			header = 8;
		else if (p->protocol == IPPROTO_AH)
			header = (bytes[1] + 2) * 4;
		else
			header = (bytes[1] + 1) * 8;
		if (left < header)
			return PARSED_MALFORMED;
		if (p->protocol == IPPROTO_FRAGMENT) {
			if (bytes[2] | (bytes[3] & 0xf8))
				p->fragment = FRAGMENT_LATER;
			else if (bytes[3] & 1)
				p->fragment = FRAGMENT_FIRST;
		}
		left -= header;
		p->transport_at += header;
		p->protocol = bytes[0];
		if (p->fragment == FRAGMENT_LATER)
			return PARSED_IP;
		c.pos = (void *)bytes + header;
	}
	if (is_extension(p->protocol))
		return PARSED_MALFORMED;
	return parse_transport(p, c, left);
}

#define UNPARSED ((struct packet){ .vlan = VLAN_NONE, .detail = DETAIL_NONE })

/* Frames begin with the IP header: the interface has no link layer (tun, WireGuard, PPP, IP in IP). */
const volatile bool parse_bare_ip = false;

/* What is behind Ethernet's header and at most two tags: an EtherType, or negative: the frame is malformed. */
static __always_inline int parse_ethernet(struct packet *p, struct cursor *c)
{
	struct ethhdr *eth = cursor_take(c, sizeof(*eth));
	struct vlan_tag *tag;
	__u16 ethertype;

	if (!eth)
		return -1;
	ethertype = bpf_ntohs(eth->h_proto);
	p->ip_at = sizeof(*eth);
	if (!is_tag(ethertype))
		return ethertype;
	tag = cursor_take(c, sizeof(*tag));
	if (!tag)
		return -1;
	p->vlan = bpf_ntohs(tag->id) & 0xfff;
	ethertype = bpf_ntohs(tag->ethertype);
	p->ip_at += sizeof(*tag);
	if (!is_tag(ethertype))
		return ethertype;
	tag = cursor_take(c, sizeof(*tag));
	if (!tag)
		return -1;
	ethertype = bpf_ntohs(tag->ethertype);
	p->ip_at += sizeof(*tag);
	/* The stack takes off any number of priority tags, and VLAN devices can lie within each other: what is behind a third tag could reach it unseen. */
	return is_tag(ethertype) ? -1 : ethertype;
}

/* The same of a frame that begins with the IP header: the version is all that tells. The stack goes by a word beside the frame; whatever is neither
 * version could be a packet of any protocol there, tags in front of IP included. */
static __always_inline int parse_version(const struct cursor *c)
{
	const __u8 *first = c->pos;

	if ((void *)(first + 1) > c->end)
		return -1;
	switch (*first >> 4) {
	case 4:
		return ETH_P_IP;
	case 6:
		return ETH_P_IPV6;
	default:
		return -1;
	}
}

/* What the frame is: enum parsed. `p` is UNPARSED before. A global function: verified once, by itself. */
__noinline int parse_frame(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	enum parsed parsed = PARSED_NOT_IP;
	int ethertype;

	if (!p)
		return PARSED_MALFORMED;
	p->frame_len = (__u64)c.end - (__u64)c.pos;
	ethertype = parse_bare_ip ? parse_version(&c) : parse_ethernet(p, &c);
	if (ethertype < 0)
		return PARSED_MALFORMED;
	p->ethertype = ethertype;
	if (ethertype == ETH_P_IP)
		parsed = parse_ipv4(ctx, p, c);
	else if (ethertype == ETH_P_IPV6)
		parsed = parse_ipv6(ctx, p, c);
	/* More than the first buffer. */
	if (p->frame_len < (__u32)p->ip_at + p->len)
		p->frame_len = (__u32)p->ip_at + p->len;
	return parsed;
}

/* The frame that nearly all are, in one look: IPv4 without options, tags or fragments, TCP or UDP, all in the first buffer. False: it is
 * another one, or something is wrong with it, and parse_frame() is to say what. */
static __always_inline bool parse_common(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct tcphdr *tcp = data + sizeof(struct ethhdr) + sizeof(*ip);
	__u32 frame_len = (__u64)end - (__u64)data, len, header;

	if ((void *)(tcp + 1) > end)
		return false;
	/* struct ethhdr is packed: its member would be loaded byte by byte. */
	if (((__be16 *)ip)[-1] != bpf_htons(ETH_P_IP) || *(__u8 *)ip != 0x45)
		return false;
	if (ip->frag_off & bpf_htons(MORE_FRAGMENTS | FRAGMENT_OFFSET))
		return false;
	len = bpf_ntohs(ip->tot_len);
	if (sizeof(struct ethhdr) + len > frame_len)
		return false;
	p->protocol = ip->protocol;
	if (ip->protocol == IPPROTO_TCP) {
		header = (((__u8 *)tcp)[12] >> 4) * 4;
		if (header < sizeof(*tcp) || sizeof(*ip) + header > len)
			return false;
		p->flags = ((__u8 *)tcp)[13];
		p->detail = p->flags;
		p->has_flags = true;
	} else if (ip->protocol == IPPROTO_UDP) {
		if (len < sizeof(*ip) + 8)
			return false;
	} else {
		return false;
	}
	p->family = 4;
	p->source[0] = ip->saddr;
	p->destination[0] = ip->daddr;
	p->source_port = bpf_ntohs(tcp->source);
	p->destination_port = bpf_ntohs(tcp->dest);
	p->has_ports = true;
	p->len = len;
	p->dscp = ip->tos >> 2;
	p->ip_at = sizeof(struct ethhdr);
	p->transport_at = sizeof(struct ethhdr) + sizeof(*ip);
	p->ethertype = ETH_P_IP;
	p->frame_len = frame_len;
	return true;
}

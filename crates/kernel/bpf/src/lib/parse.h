/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A frame's bytes to a packet as the rules see it. Nothing is believed: what does not fit into the frame, or contradicts itself, is
 * malformed. The same in Rust: crates/words/rules/src/packet.rs; tests hold the two together. */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include "filter/shield.h"

#define SHIELD_TAGS 2
#define SHIELD_EXTENSIONS 8
#define SHIELD_ICMPV6 58
#define SHIELD_UDPLITE 136
#define SHIELD_MORE_FRAGMENTS 0x2000
#define SHIELD_FRAGMENT_OFFSET 0x1fff

struct shield_tag {
	__be16 id;
	__be16 ethertype;
};

static __always_inline bool shield_is_tag(__u16 ethertype)
{
	return ethertype == ETH_P_8021Q || ethertype == ETH_P_8021AD;
}

/* Of the whole frame, all its buffers. The helper is called only where the first buffer is not enough. */
static __always_inline bool shield_frame_holds(struct xdp_md *ctx, const struct shield_packet *p, __u32 bytes)
{
	return p->frame_len >= bytes || bpf_xdp_get_buff_len(ctx) >= bytes;
}

/* Ports, flags and types; `left` is what the IP packet has from the transport header on. */
static __always_inline enum shield_parsed shield_transport(struct shield_packet *p, struct cursor c, __u32 left)
{
	struct tcphdr *tcp;
	__be16 *ports;
	__u8 *bytes;
	__u32 need;

	switch (p->protocol) {
	case IPPROTO_TCP:
		tcp = cursor_take(&c, sizeof(*tcp));
		if (!tcp || left < sizeof(*tcp))
			return SHIELD_MALFORMED;
		bytes = (__u8 *)tcp;
		need = (bytes[12] >> 4) * 4;
		if (need < sizeof(*tcp) || need > left)
			return SHIELD_MALFORMED;
		p->source_port = bpf_ntohs(tcp->source);
		p->destination_port = bpf_ntohs(tcp->dest);
		p->has_ports = true;
		p->has_flags = true;
		p->flags = bytes[13];
		p->detail = bytes[13];
		return SHIELD_IP;
	case IPPROTO_UDP:
	case SHIELD_UDPLITE:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		need = p->protocol == IPPROTO_UDP || p->protocol == SHIELD_UDPLITE ? 8 : 4;
		ports = cursor_take(&c, 2 * sizeof(*ports));
		if (!ports || left < need)
			return SHIELD_MALFORMED;
		p->source_port = bpf_ntohs(ports[0]);
		p->destination_port = bpf_ntohs(ports[1]);
		p->has_ports = true;
		return SHIELD_IP;
	case IPPROTO_ICMP:
	case SHIELD_ICMPV6:
		if ((p->protocol == IPPROTO_ICMP) != (p->family == 4))
			return SHIELD_IP;
		bytes = cursor_take(&c, 4);
		if (!bytes || left < 4)
			return SHIELD_MALFORMED;
		p->has_flags = true;
		p->flags = bytes[0];
		p->detail = (p->family == 4 ? 256 : 512) + bytes[0];
		return SHIELD_IP;
	default:
		return SHIELD_IP;
	}
}

static __always_inline enum shield_parsed shield_ipv4(struct xdp_md *ctx, struct shield_packet *p, struct cursor c)
{
	struct iphdr *ip = cursor_take(&c, sizeof(*ip));
	__u32 header, len;
	__u16 offset;

	if (!ip || ip->version != 4)
		return SHIELD_MALFORMED;
	header = ip->ihl * 4;
	len = bpf_ntohs(ip->tot_len);
	if (header < sizeof(*ip) || len < header || !shield_frame_holds(ctx, p, p->ip_at + len))
		return SHIELD_MALFORMED;
	p->family = 4;
	p->source[0] = ip->saddr;
	p->destination[0] = ip->daddr;
	p->len = len;
	p->protocol = ip->protocol;
	p->dscp = ip->tos >> 2;
	p->transport_at = p->ip_at + header;
	offset = bpf_ntohs(ip->frag_off);
	if (offset & SHIELD_FRAGMENT_OFFSET) {
		p->fragment = SHIELD_LATER;
		return SHIELD_IP;
	}
	if (offset & SHIELD_MORE_FRAGMENTS)
		p->fragment = SHIELD_FIRST;
	c.pos = (void *)ip + header;
	return shield_transport(p, c, len - header);
}

/* Extension headers that are walked: hop-by-hop options, routing, fragment, authentication, destination options (RFC 8200). */
static __always_inline bool shield_is_extension(__u8 header)
{
	return header == IPPROTO_HOPOPTS || header == IPPROTO_ROUTING || header == IPPROTO_FRAGMENT ||
	       header == IPPROTO_AH || header == IPPROTO_DSTOPTS;
}

static __always_inline enum shield_parsed shield_ipv6(struct xdp_md *ctx, struct shield_packet *p, struct cursor c)
{
	struct ipv6hdr *ip = cursor_take(&c, sizeof(*ip));
	__u32 len, left, header, i;
	__u8 *bytes;

	if (!ip || ip->version != 6)
		return SHIELD_MALFORMED;
	left = bpf_ntohs(ip->payload_len);
	len = left + sizeof(*ip);
	if (!shield_frame_holds(ctx, p, p->ip_at + len))
		return SHIELD_MALFORMED;
	p->family = 6;
	__builtin_memcpy(p->source, &ip->saddr, sizeof(p->source));
	__builtin_memcpy(p->destination, &ip->daddr, sizeof(p->destination));
	p->len = len > 0xffff ? 0xffff : len;
	p->protocol = ip->nexthdr;
	p->dscp = ip->priority << 2 | ip->flow_lbl[0] >> 6;
	p->transport_at = p->ip_at + sizeof(*ip);
#pragma clang loop unroll(disable)
	for (i = 0; i < SHIELD_EXTENSIONS && shield_is_extension(p->protocol); i++) {
		bytes = cursor_take(&c, 8);
		if (!bytes)
			return SHIELD_MALFORMED;
		if (p->protocol == IPPROTO_FRAGMENT)
			header = 8;
		else if (p->protocol == IPPROTO_AH)
			header = (bytes[1] + 2) * 4;
		else
			header = (bytes[1] + 1) * 8;
		if (left < header)
			return SHIELD_MALFORMED;
		if (p->protocol == IPPROTO_FRAGMENT) {
			if (bytes[2] | (bytes[3] & 0xf8))
				p->fragment = SHIELD_LATER;
			else if (bytes[3] & 1)
				p->fragment = SHIELD_FIRST;
		}
		left -= header;
		p->transport_at += header;
		p->protocol = bytes[0];
		if (p->fragment == SHIELD_LATER)
			return SHIELD_IP;
		c.pos = (void *)bytes + header;
	}
	if (shield_is_extension(p->protocol))
		return SHIELD_MALFORMED;
	return shield_transport(p, c, left);
}

#define SHIELD_UNPARSED ((struct shield_packet){ .vlan = SHIELD_VLAN_NONE, .detail = SHIELD_DETAIL_NONE })

/* What the frame is: enum shield_parsed. `p` is SHIELD_UNPARSED before. A global function: verified once, by itself. */
__noinline int shield_parse(struct xdp_md *ctx, struct shield_packet *p)
{
	struct cursor c = { .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	enum shield_parsed parsed = SHIELD_NOT_IP;
	struct shield_tag *tag, third;
	struct ethhdr *eth;
	__u16 ethertype;

	if (!p)
		return SHIELD_MALFORMED;
	p->frame_len = (__u64)c.end - (__u64)c.pos;
	eth = cursor_take(&c, sizeof(*eth));
	if (!eth)
		return SHIELD_MALFORMED;
	ethertype = bpf_ntohs(eth->h_proto);
	p->ip_at = sizeof(*eth);
	if (shield_is_tag(ethertype)) {
		tag = cursor_take(&c, sizeof(*tag));
		if (!tag)
			return SHIELD_MALFORMED;
		p->vlan = bpf_ntohs(tag->id) & 0xfff;
		ethertype = bpf_ntohs(tag->ethertype);
		p->ip_at += sizeof(*tag);
		if (shield_is_tag(ethertype)) {
			tag = cursor_take(&c, sizeof(*tag));
			if (!tag)
				return SHIELD_MALFORMED;
			ethertype = bpf_ntohs(tag->ethertype);
			p->ip_at += sizeof(*tag);
			if (shield_is_tag(ethertype)) {
				/* The stack takes off any number of priority tags: what is behind them would reach it unseen. */
				if (!p->vlan || !(tag->id & bpf_htons(0xfff)) || bpf_xdp_load_bytes(ctx, p->ip_at, &third, sizeof(third)) ||
				    !(third.id & bpf_htons(0xfff)))
					return SHIELD_MALFORMED;
			}
		}
	}
	p->ethertype = ethertype;
	if (ethertype == ETH_P_IP)
		parsed = shield_ipv4(ctx, p, c);
	else if (ethertype == ETH_P_IPV6)
		parsed = shield_ipv6(ctx, p, c);
	/* More than the first buffer. */
	if (p->frame_len < (__u32)p->ip_at + p->len)
		p->frame_len = (__u32)p->ip_at + p->len;
	return parsed;
}

/* The frame that nearly all are, in one look: IPv4 without options, tags or fragments, TCP or UDP, all in the first buffer. False: it is
 * another one, or something is wrong with it, and shield_parse() is to say what. */
static __always_inline bool shield_parse_common(struct xdp_md *ctx, struct shield_packet *p)
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
	if (ip->frag_off & bpf_htons(SHIELD_MORE_FRAGMENTS | SHIELD_FRAGMENT_OFFSET))
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

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Ends the handshakes that filter/cookie/cookie.h began: at tc, where a socket can be given to a packet. An ACK that XDP has found right, and
 * marked, gets the connection that it stands for, with all its options; its listener takes it from there (kernel 6.9 on). All other
 * packets cost one comparison.
 */
#include "lib/common.h"

#include <linux/pkt_cls.h>

#include "filter/cookie/ack.h"

/* TCX_NEXT of include/uapi/linux/bpf.h (6.6): on to the next program. */
#define ACK_NEXT (-1)
#define ACK_PROTO_IP bpf_htons(ETH_P_IP)

/* Of include/linux/bpf.h; the kernel checks its size. */
struct bpf_tcp_req_attrs {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale;
	__u8 snd_wscale;
	__u8 ecn_ok;
	__u8 wscale_ok;
	__u8 sack_ok;
	__u8 tstamp_ok;
	__u8 usec_ts_ok;
	__u8 reserved[3];
};

/* Not looked into; but a mere declaration would not match the kernel's. */
struct sock {
} __attribute__((preserve_access_index));

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk, struct bpf_tcp_req_attrs *attrs, int attrs__sz) __ksym;

/* What one CPU did with marked ACKs. */
struct shield_ack_count {
	/* Given to a listener. */
	__u64 given;
	/* The listener has gone since, or a connection has come. */
	__u64 unlistened;
	/* The kernel refused: tcp_syncookies is 0, or an option is switched off. */
	__u64 refused;
};

PER_CPU(struct shield_ack_count, ack_counts);

/* The socket that the packet is for: the connection if there is one. */
static __always_inline struct bpf_sock *socket_of(struct __sk_buff *skb, const struct shield_ack *ack)
{
	struct bpf_sock_tuple tuple;

	if (skb->protocol == ACK_PROTO_IP) {
		if (bpf_skb_load_bytes_relative(skb, 12, &tuple.ipv4.saddr, 8, BPF_HDR_START_NET) ||
		    bpf_skb_load_bytes_relative(skb, ack->transport, &tuple.ipv4.sport, 4, BPF_HDR_START_NET))
			return 0;
		return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	if (bpf_skb_load_bytes_relative(skb, 8, tuple.ipv6.saddr, 32, BPF_HDR_START_NET) ||
	    bpf_skb_load_bytes_relative(skb, ack->transport, &tuple.ipv6.sport, 4, BPF_HDR_START_NET))
		return 0;
	return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* Not inlined: most packets never come here. */
static __noinline int give(struct __sk_buff *skb, const struct shield_ack *ack)
{
	struct bpf_tcp_req_attrs attrs = {};
	struct shield_ack_count *count;
	struct bpf_sock *sk;
	__u32 zero = 0;
	void *tcp;
	long code;

	count = bpf_map_lookup_elem(&ack_counts, &zero);
	if (!count || !ack)
		return ACK_NEXT;
	sk = socket_of(skb, ack);
	if (!sk) {
		count->unlistened++;
		return ACK_NEXT;
	}
	tcp = sk->state == BPF_TCP_LISTEN ? bpf_skc_to_tcp_sock(sk) : 0;
	if (!tcp) {
		count->unlistened++;
		bpf_sk_release(sk);
		return ACK_NEXT;
	}
	attrs.mss = ack->mss;
	if (ack->flags & SHIELD_ACK_TIMESTAMPS) {
		attrs.tstamp_ok = 1;
		attrs.rcv_tsval = ack->tsval;
		attrs.rcv_tsecr = ack->tsecr;
		attrs.sack_ok = !!(ack->flags & SHIELD_ACK_SACK);
		attrs.ecn_ok = !!(ack->flags & SHIELD_ACK_ECN);
		if (ack->wscale != SHIELD_NO_WSCALE) {
			attrs.wscale_ok = 1;
			attrs.snd_wscale = ack->wscale;
			attrs.rcv_wscale = ack->own_wscale;
		}
	}
	code = bpf_sk_assign_tcp_reqsk(skb, tcp, &attrs, sizeof(attrs));
	bpf_sk_release(sk);
	if (code)
		count->refused++;
	else
		count->given++;
	return ACK_NEXT;
}

/* The packet goes to its connection. If there is none after all (the listener's queue is full), it is dropped, as XDP would have: a
 * listener would answer it by a RST, and the client, who tries again otherwise, would give up. */
static __noinline int follow(struct __sk_buff *skb, const struct shield_ack *ack)
{
	struct bpf_sock *sk;
	int state;

	if (!ack)
		return ACK_NEXT;
	sk = socket_of(skb, ack);
	if (!sk)
		return TC_ACT_SHOT;
	state = sk->state;
	bpf_sk_release(sk);
	return state == BPF_TCP_LISTEN ? TC_ACT_SHOT : ACK_NEXT;
}

SEC("tc")
int shield_ack(struct __sk_buff *skb)
{
	const struct shield_ack *mark = (void *)(long)skb->data_meta;
	struct shield_ack ack;

	if ((void *)(mark + 1) > (void *)(long)skb->data || mark->magic != SHIELD_ACK_MAGIC)
		return ACK_NEXT;
	/*
	 * Packets of one NAPI poll go through here together, before TCP has seen the first of them: of an ACK and the data behind it each
	 * would make a connection, and the kernel drops the second with its data. The backlog hands them on one by one.
	 *
	 * That it has been here is said beside the frame, not in the mark. Where a packet socket reads along, the frame's bytes are shared with
	 * its copy, and a program that may write to them gets bytes of its own, without the mark.
	 */
	if (skb->tc_index != SHIELD_ACK_AGAIN) {
		skb->tc_index = SHIELD_ACK_AGAIN;
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	}
	skb->tc_index = 0;
	ack = *mark;
	return ack.flags & SHIELD_ACK_BEHIND ? follow(skb, &ack) : give(skb, &ack);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

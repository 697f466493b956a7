/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The shield: each frame is parsed, counted to what is watched, and judged by the first rule that decides.
 *
 * One object is loaded per set of rules, with tables of its own, and takes the place of the one before in a single step; what has to
 * go on (counters, limits, the heartbeat) is in maps that it takes over. Switches are constants to the verifier: what a set of rules
 * does not use is not in the program that runs. */
#include "shield_parse.h"
#include "shield_rules.h"
#include "shield_limit.h"
#include "shield_watch.h"
#if __has_include("shield_cookie.h")
#include "shield_cookie.h"
#endif
#if __has_include("shield_between.h")
#include "shield_between.h"
#endif

/* What happens to packets that no rule decides about, and to malformed ones: enum shield_action. */
const volatile __u32 shield_default = SHIELD_PASS;
const volatile __u32 shield_malformed = SHIELD_DROP;
/* SYN cookies are set up; frames that pass go to another interface; the deciding rule is told. */
const volatile bool shield_cookies = false;
const volatile bool shield_crosses = false;
const volatile bool shield_tells = false;
/* Some rule is a limit. */
const volatile bool shield_limits = false;
/* For how long in ns the heartbeat may stop; 0: nobody listens to it. Whether then all but the management rules' packets are
 * dropped. */
const volatile __u64 shield_beat_ns = 0;
const volatile bool shield_fail_closed = false;

/* Written by user space; shared by all programs that follow each other. */
struct shield_beat {
	/* CLOCK_MONOTONIC in ns. */
	__u64 at_ns;
	/* Of the shared maps' meaning; what shield_seed is to be. */
	__u64 version;
	__u64 seed;
	__u64 pad[5];
} shield_beat SEC(".data.sh_beat") = {};

/* What one run found, for tests. */
struct shield_told {
	/* enum shield_parsed, plus 1. */
	__u32 parsed;
	/* The deciding rule's index plus 1; 0: the default, or none was asked. */
	__u32 rule;
	/* Enum shield_action. */
	__u32 verdict;
	__u32 failed;
	struct shield_packet packet;
} shield_told SEC(".data.sh_told") = {};

/* No rule decides. */
#define SHIELD_NONE 0xffffffff

/* What the search for the deciding rule takes along. */
struct shield_search {
	struct shield_packet packet;
	/* The rules of the present word that apply. */
	__u64 bits;
	__u32 word;
	/* Only management rules hold. */
	__u32 closed;
};

static __always_inline void shield_count(struct shield_cpu *cpu, __u16 counter, const struct shield_packet *p)
{
	struct shield_count *count = &cpu->rule[counter & (SHIELD_COUNTERS - 1)];

	count->packets++;
	count->bytes += p->frame_len;
}

/* Looks through the rules of one word that apply; the deciding rule's index times 4 plus its action, or SHIELD_NONE. */
__noinline __u32 shield_search_word(struct shield_search *s)
{
	struct shield_rule *rule;
	struct shield_cpu *cpu;
	__u64 bits;
	__u32 n, i;

	if (!s)
		return SHIELD_NONE;
	cpu = shield_cpu();
	bits = s->bits;
#pragma clang loop unroll(disable)
	for (i = 0; i < 64 && bits; i++, bits &= bits - 1) {
		n = (s->word & (SHIELD_WORDS - 1)) * 64 + shield_lowest(bits);
		rule = &shield_table(shield_rules)[n & shield_rules_mask];
		if (s->closed && !(rule->flags & SHIELD_MANAGEMENT))
			continue;
		if (rule->expires_ns && bpf_ktime_get_coarse_ns() >= rule->expires_ns)
			continue;
		shield_count(cpu, rule->counter, &s->packet);
		if (shield_limits && rule->action == SHIELD_LIMIT) {
			if (shield_within(rule, &s->packet, &cpu->total))
				continue;
			cpu->rule[rule->counter & (SHIELD_COUNTERS - 1)].limited++;
		}
		if (!(rule->flags & SHIELD_SHADOW))
			return n * 4 + (rule->action & 3);
	}
	return SHIELD_NONE;
}

/* The deciding rule's index times 4 plus its action, or SHIELD_NONE. */
static __always_inline __u32 shield_decide(const struct shield_packet *p, struct shield_cpu *cpu, bool closed)
{
	struct shield_search search;
	struct shield_place place = {};
	struct shield_rule *rule;
	__u32 n, i, word, found;
	__u64 bits, words;

	shield_classify(p, &place);
	bits = shield_apply(&place, 0);
	if (!bits)
		return SHIELD_NONE;
	n = shield_lowest(bits);
	if (shield_words == 1) {
		rule = &shield_table(shield_rules)[n];
		if (rule->plain && !closed) {
			shield_count(cpu, rule->counter, p);
			return n * 4 + (rule->action & 3);
		}
	}
	search.packet = *p;
	search.closed = closed;
	search.word = 0;
	search.bits = bits;
	if (shield_words == 1)
		return shield_search_word(&search);
	words = bits;
#pragma clang loop unroll(disable)
	for (i = 0; i < SHIELD_WORDS && words; i++, words &= words - 1) {
		word = shield_lowest(words);
		if (word >= shield_words)
			break;
		search.word = word;
		search.bits = shield_apply(&place, word + 1);
		found = shield_search_word(&search);
		if (found != SHIELD_NONE)
			return found;
	}
	return SHIELD_NONE;
}

static __always_inline int shield_pass(struct xdp_md *ctx, struct shield_total *total, __u32 frame_len)
{
	total->passed++;
	total->passed_bytes += frame_len;
#if __has_include("shield_between.h")
	if (shield_crosses)
		return shield_cross(ctx);
#endif
	return XDP_PASS;
}

static __always_inline int shield_drop(struct shield_total *total, __u32 frame_len)
{
	total->dropped++;
	total->dropped_bytes += frame_len;
	return XDP_DROP;
}

SEC("xdp.frags")
int ek_shield(struct xdp_md *ctx)
{
	struct shield_cpu *cpu = shield_cpu();
	struct shield_total *total = &cpu->total;
	enum shield_parsed parsed;
	struct shield_packet p;
	__u32 found, action;
	bool closed = false;
	__u64 now, beat;

	parsed = shield_parse(ctx, &p);
	if (shield_beat_ns) {
		now = bpf_ktime_get_coarse_ns();
		beat = *(volatile __u64 *)&shield_beat.at_ns;
		if (now > beat && now - beat > shield_beat_ns) {
			if (shield_tells)
				shield_told.failed = 1;
			if (!shield_fail_closed) {
				total->failed_open++;
				return shield_pass(ctx, total, p.frame_len);
			}
			closed = true;
		}
	}
	if (shield_tells) {
		shield_told.parsed = parsed + 1;
		shield_told.packet = p;
	}
	if (parsed == SHIELD_NOT_IP) {
		total->not_ip++;
		/* Nobody reaches anybody without ARP, management included. */
		if (!closed || p.ethertype == ETH_P_ARP)
			return shield_pass(ctx, total, p.frame_len);
		total->failed_closed++;
		return shield_drop(total, p.frame_len);
	}
	if (parsed == SHIELD_MALFORMED) {
		total->malformed++;
		if (shield_malformed == SHIELD_PASS && !closed)
			return shield_pass(ctx, total, p.frame_len);
		if (closed)
			total->failed_closed++;
		return shield_drop(total, p.frame_len);
	}
	if (watch_on)
		shield_watch(&p, shield_protected(&p), p.frame_len);
	found = shield_decide(&p, cpu, closed);
	if (found == SHIELD_NONE) {
		action = shield_default;
		if (closed) {
			total->failed_closed++;
			action = SHIELD_DROP;
		} else {
			total->by_default++;
		}
	} else {
		action = found & 3;
	}
	if (shield_tells) {
		shield_told.rule = found == SHIELD_NONE ? 0 : (found >> 2) + 1;
		shield_told.verdict = action;
	}
	switch (action) {
	case SHIELD_LIMIT:
		total->limited++;
		return shield_drop(total, p.frame_len);
	case SHIELD_DROP:
		return shield_drop(total, p.frame_len);
	case SHIELD_CHALLENGE:
#if __has_include("shield_cookie.h")
		if (shield_cookies) {
			int answer = shield_challenge(ctx, &p);

			if (answer >= 0) {
				total->challenged++;
				return answer == XDP_DROP ? shield_drop(total, p.frame_len) : answer;
			}
		}
#endif
		return shield_pass(ctx, total, p.frame_len);
	default:
		return shield_pass(ctx, total, p.frame_len);
	}
}

char _license[] SEC("license") = "Dual BSD/GPL";

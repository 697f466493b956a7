/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The shield: each frame is parsed, counted to what is watched, and judged by the first rule that decides.
 *
 * One object is loaded per set of rules, with tables of its own, and takes the place of the one before in a single step; what has to
 * go on (counters, limits, the heartbeat) is in maps that it takes over. Switches are constants to the verifier: what a set of rules
 * does not use is not in the program that runs.
 *
 * clang: -mcpu=v3 (32-bit instructions make the machine code a fourteenth shorter) */
#include "chain/place.h"
#include "filter/beat.h"
#include "filter/between.h"
#include "filter/cookie/cookie.h"
#include "filter/known.h"
#include "filter/limits.h"
#include "filter/rules.h"
#include "filter/watch.h"
#include "lib/parse.h"

/* What happens to packets that no rule decides about, and to malformed ones: enum shield_action. */
const volatile __u32 shield_default = SHIELD_PASS;
const volatile __u32 shield_malformed = SHIELD_DROP;
/* SYN cookies are set up; frames that pass go to another interface; verdicts are reported. */
const volatile bool shield_cookies = false;
const volatile bool shield_crosses = false;
const volatile bool shield_reports = false;
/* Some rule is a limit; some challenge yields to the rules behind it. */
const volatile bool shield_limits = false;
const volatile bool shield_yields = false;
/* When the heartbeat stops, all but the management rules' packets are dropped. */
const volatile bool shield_fail_closed = false;

/* What one run found, for tests. */
struct shield_report {
	/* enum parsed, plus 1. */
	__u32 parsed;
	/* The deciding rule's index plus 1; 0: the default, or none was asked. */
	__u32 rule;
	/* Enum shield_action. */
	__u32 verdict;
	__u32 failed;
	struct packet packet;
} shield_report SEC(".data.sh_report") = {};

/* The chain of the other one of two interfaces. */
CHAIN_ARRAY(chain_rests_2nd, CHAIN_PLACES);
struct chain_state chain_state_2nd SEC(".data.chain_2nd") = {};

/* No rule decides. */
#define SHIELD_NONE 0xffffffff

/* What the search for the deciding rule takes along. */
struct shield_search {
	struct packet packet;
	/* The rules of the present word that apply. */
	__u64 bits;
	__u32 word;
	/* Only management rules hold. */
	__u32 closed;
	/* The first challenge that applies and yields: its index plus 1. */
	__u32 challenge;
	/* Where the rows of what the machine knows begin, plus 1; 0: not looked for yet. */
	__u32 known;
};

static __always_inline void shield_count(struct shield_cpu *cpu, __u16 counter, const struct packet *p)
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
		rule = &resized(shield_rules)[n & shield_rules_mask];
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
		if (rule->flags & SHIELD_SHADOW)
			continue;
		if (shield_yields && rule->flags & SHIELD_YIELDS) {
			if (!s->challenge)
				s->challenge = n + 1;
			continue;
		}
		return n * 4 + (rule->action & 3);
	}
	return SHIELD_NONE;
}

/* `bits` of word `word`, without the rules that ask what the machine knows and are answered otherwise. A function of its own, as the stack of
 * those that call it is full. */
__noinline __u64 shield_answer(struct xdp_md *ctx, struct shield_search *s, __u64 bits, __u64 word)
{
	__u64 base = shield_base[SHIELD_KNOWN], at;
	struct shield_cookie_cpu *cpu;

	/* With several words there is one in front. Kernels before 6.8 verify this function also where nothing calls it. */
	if (!s || !shield_uses[SHIELD_KNOWN] || word > (shield_words == 1 ? 0 : shield_words))
		return 0;
	at = times(base + shield_unknown_row(), shield_stride());
	if (!(bits & ~resized(shield_rows)[at + word]))
		return bits;
	if (!s->known) {
		cpu = known_cpu();
		if (!cpu)
			return 0;
		cpu->work.packet = s->packet;
		s->known = known_row(ctx, cpu, shield_look(ctx)) + 1;
	}
	at = times(base + ((s->known - 1) & shield_mask[SHIELD_KNOWN]), shield_stride());
	return bits & resized(shield_rows)[at + word];
}

static __always_inline __u64 shield_apply_known(struct xdp_md *ctx, struct shield_search *s, __u64 bits, __u64 word)
{
	return shield_uses[SHIELD_KNOWN] ? shield_answer(ctx, s, bits, word) : bits;
}

/* The deciding rule's index times 4 plus its action, or SHIELD_NONE, of the packet in `s`. A function of its own for the sake of the stack. */
__noinline __u32 shield_decide(struct xdp_md *ctx, struct shield_search *s)
{
	struct shield_place place = {};
	__u32 i, word, found;
	__u64 words;

	if (!s)
		return SHIELD_NONE;
	shield_classify(&s->packet, &place);
	s->word = 0;
	s->bits = shield_apply(&place, 0);
	if (!s->bits)
		return SHIELD_NONE;
	if (shield_words == 1) {
		s->bits = shield_apply_known(ctx, s, s->bits, 0);
		return shield_search_word(s);
	}
	words = s->bits;
#pragma clang loop unroll(disable)
	for (i = 0; i < SHIELD_WORDS && words; i++, words &= words - 1) {
		word = shield_lowest(words);
		if (word >= shield_words)
			break;
		s->word = word;
		s->bits = shield_apply_known(ctx, s, shield_apply(&place, word + 1), word + 1);
		found = shield_search_word(s);
		if (found != SHIELD_NONE)
			return found;
	}
	return SHIELD_NONE;
}

/* For shield_notify_captures(): a rule challenges, and what comes of it is not known yet; and what has come of it. In two steps, as what
 * answers needs nearly all of the stack, and the rule would have to be kept on it meanwhile. */
#define SHIELD_PENDING 7
#define SHIELD_CHALLENGED 0xfffffffe

/* Notifies captures of the verdict on the frame and its reason, by rule `found`. */
__noinline int shield_notify_captures(struct xdp_md *ctx, __u32 why, __u32 found, __u32 verdict)
{
	struct chain_state *state = &chain_state;
	struct chain_cpu *cpu;
	__u32 action = verdict & 7, word;
	bool passes = action == XDP_PASS;

	if (action == XDP_REDIRECT) {
		/* What does not cross is an answer. */
		passes = verdict & (SHIELD_CROSSES_FIRST | SHIELD_CROSSES_SECOND);
		if (!passes)
			action = XDP_TX;
	}
	word = CHAIN_WORD(why & 15, action, 0);
	if (shield_crosses && ctx->ingress_ifindex != shield_between_first)
		state = &chain_state_2nd;
	cpu = chain_cpu_of(state, bpf_get_smp_processor_id());
	if (found == SHIELD_CHALLENGED)
		word += cpu->passed & 0xffff;
	else if (found != SHIELD_NONE)
		word += resized(shield_rules)[(found >> 2) & shield_rules_mask].counter + 1;
	if (verdict == SHIELD_PENDING) {
		cpu->passed = word;
		return 0;
	}
	if (cpu->ask) {
		cpu->verdict = word;
		cpu->ask = 0;
	}
	cpu->passed = passes ? word : 0;
	return 0;
}

/* The rule that was found, as it was put away. */
static __always_inline __u32 shield_found(const struct shield_search *s)
{
	return *(const volatile __u32 *)&s->word;
}

/* Why rule `found`, or the default, decides. */
static __always_inline enum chain_why shield_why(__u32 found, __u32 closed)
{
	if (found != SHIELD_NONE)
		return CHAIN_RULE;
	return closed ? CHAIN_NO_HEARTBEAT : CHAIN_DEFAULT;
}

/* The end of each way through the program. */
static __always_inline int shield_end(struct xdp_md *ctx, enum chain_why why, __u32 found, int verdict)
{
	__u64 wanted;

	if (!chain_on)
		return verdict;
	/* Both words of both chains. */
	wanted = *(volatile __u64 *)&chain_state.before;
	if (shield_crosses)
		wanted |= *(volatile __u64 *)&chain_state_2nd.before;
	if (__builtin_expect(wanted != 0, 0))
		shield_notify_captures(ctx, why, found, verdict);
	return verdict;
}

static __always_inline int shield_pass(struct xdp_md *ctx, struct shield_total *total, __u32 frame_len)
{
	total->passed++;
	total->passed_bytes += frame_len;
	if (shield_crosses)
		return shield_cross(ctx);
	return XDP_PASS;
}

static __always_inline int shield_drop(struct shield_total *total, __u32 frame_len)
{
	total->dropped++;
	total->dropped_bytes += frame_len;
	return XDP_DROP;
}

static __always_inline void shield_report_packet(enum parsed parsed, const struct packet *p)
{
	if (shield_reports) {
		shield_report.parsed = parsed + 1;
		shield_report.packet = *p;
	}
}

static __always_inline void shield_report_verdict(__u32 found, __u32 action)
{
	if (shield_reports) {
		shield_report.rule = found == SHIELD_NONE ? 0 : (found >> 2) + 1;
		shield_report.verdict = action;
	}
}

/* A packet that rule `found` challenges: answered, dropped, or passed on. */
static __always_inline int shield_challenge_by(struct xdp_md *ctx, struct shield_total *total, const struct packet *p, __u32 found)
{
	int answer;

	shield_end(ctx, CHAIN_CHALLENGE, found, SHIELD_PENDING);
	if (shield_cookies) {
		answer = shield_challenge(ctx, p);
		if (answer >= 0) {
			total->challenged++;
			if (answer == XDP_DROP)
				shield_drop(total, p->frame_len);
			return shield_end(ctx, CHAIN_CHALLENGE, SHIELD_CHALLENGED, answer);
		}
	}
	return shield_end(ctx, CHAIN_CHALLENGE, SHIELD_CHALLENGED, shield_pass(ctx, total, p->frame_len));
}

/* The packet was watched already; only management rules hold. */
enum shield_way { SHIELD_WATCHED = 1, SHIELD_CLOSED = 2 };

/* Any frame, one step after the other. A global function: verified once, by itself. */
__noinline int shield_any(struct xdp_md *ctx, __u32 way)
{
	struct shield_cpu *cpu = shield_cpu();
	struct shield_total *total = &cpu->total;
	struct shield_search s = { .packet = UNPARSED, .closed = way & SHIELD_CLOSED };
	__u32 found, action;
	int parsed;

	parsed = parse_frame(ctx, &s.packet);
	shield_report_packet(parsed, &s.packet);
	if (parsed == PARSED_NOT_IP) {
		total->not_ip++;
		/* Nobody reaches anybody without ARP, management included. */
		if (!s.closed || s.packet.ethertype == ETH_P_ARP)
			return shield_end(ctx, CHAIN_NOT_IP, SHIELD_NONE, shield_pass(ctx, total, s.packet.frame_len));
		total->failed_closed++;
		return shield_end(ctx, CHAIN_NO_HEARTBEAT, SHIELD_NONE, shield_drop(total, s.packet.frame_len));
	}
	if (parsed == PARSED_MALFORMED) {
		total->malformed++;
		if (shield_malformed == SHIELD_PASS && !s.closed)
			return shield_end(ctx, CHAIN_MALFORMED, SHIELD_NONE, shield_pass(ctx, total, s.packet.frame_len));
		if (s.closed)
			total->failed_closed++;
		return shield_end(ctx, CHAIN_MALFORMED, SHIELD_NONE, shield_drop(total, s.packet.frame_len));
	}
	if (watch_on && !(way & SHIELD_WATCHED))
		shield_watch_any(&s.packet);
	found = shield_decide(ctx, &s);
	if (shield_yields && s.challenge && (found == SHIELD_NONE ? shield_default : found & 3) == SHIELD_PASS)
		found = (s.challenge - 1) * 4 + SHIELD_CHALLENGE;
	if (found == SHIELD_NONE) {
		action = shield_default;
		if (s.closed) {
			total->failed_closed++;
			action = SHIELD_DROP;
		} else {
			total->by_default++;
		}
	} else {
		action = found & 3;
	}
	shield_report_verdict(found, action);
	/* Kept where there is room already, and read from there: the stack is full. */
	s.word = found;
	switch (action) {
	case SHIELD_LIMIT:
		total->limited++;
		return shield_end(ctx, CHAIN_LIMIT, shield_found(&s), shield_drop(total, s.packet.frame_len));
	case SHIELD_DROP:
		if (shield_cookies && shield_yields && !s.closed && shield_source_verified(ctx, &s.packet))
			return shield_end(ctx, CHAIN_CHALLENGE, shield_found(&s), shield_pass(ctx, total, s.packet.frame_len));
		return shield_end(ctx, shield_why(shield_found(&s), s.closed), shield_found(&s), shield_drop(total, s.packet.frame_len));
	case SHIELD_CHALLENGE:
		return shield_challenge_by(ctx, total, &s.packet, shield_found(&s));
	default:
		return shield_end(ctx, shield_why(shield_found(&s), s.closed), shield_found(&s), shield_pass(ctx, total, s.packet.frame_len));
	}
}

/* Drops or passes a packet that parse_common() knows. */
static __always_inline int shield_drop_or_pass(struct xdp_md *ctx, struct shield_total *total, const struct packet *p, __u32 found, __u32 action)
{
	shield_report_packet(PARSED_IP, p);
	shield_report_verdict(found, action);
	if (action == SHIELD_DROP)
		return shield_end(ctx, shield_why(found, false), found, shield_drop(total, p->frame_len));
	return shield_end(ctx, shield_why(found, false), found, shield_pass(ctx, total, p->frame_len));
}

/* What is to become of a packet that parse_common() knows. */
static __always_inline int shield_settle(struct xdp_md *ctx, struct shield_total *total, const struct packet *p, __u32 found, __u32 action)
{
	if (action != SHIELD_CHALLENGE)
		return shield_drop_or_pass(ctx, total, p, found, action);
	shield_report_packet(PARSED_IP, p);
	shield_report_verdict(found, action);
	return shield_challenge_by(ctx, total, p, found);
}

/* As shield_common(), where rule `challenge` is a challenge that yields to those of `bits`. */
static __always_inline int shield_common_yielding(struct xdp_md *ctx, const struct packet *p, struct shield_cpu *cpu, __u32 challenge, __u64 bits)
{
	__u32 found = SHIELD_NONE, action = shield_default, n;
	struct shield_rule *rule;

	if (bits) {
		n = shield_lowest(bits);
		rule = &resized(shield_rules)[n];
		action = rule->action & 3;
		if (!rule->plain)
			return shield_any(ctx, SHIELD_WATCHED);
		shield_count(cpu, rule->counter, p);
		found = n * 4 + action;
	} else if (action != SHIELD_PASS) {
		cpu->total.by_default++;
	}
	shield_count(cpu, resized(shield_rules)[challenge].counter, p);
	if (action == SHIELD_PASS) {
		action = SHIELD_CHALLENGE;
		found = challenge * 4 + action;
	}
	return shield_settle(ctx, &cpu->total, p, found, action);
}

/* Not a verdict: the packet goes the long way. */
#define SHIELD_LONG_WAY 0xffff

/* As shield_common(), of the packet that is worked with, where `bits` ask what the machine knows about it; or SHIELD_LONG_WAY. A global function:
 * verified once, by itself. It does not call what goes the long way: that needs all of the stack. */
__noinline int shield_common_known(struct xdp_md *ctx, __u64 bits)
{
	struct shield_cookie_cpu *known = known_cpu();
	struct shield_cpu *cpu = shield_cpu();
	struct shield_rule *rule;
	struct packet *p;
	__u32 n;

	if (!shield_uses[SHIELD_KNOWN] || !known)
		return SHIELD_LONG_WAY;
	p = &known->work.packet;
	bits &= SHIELD_ROW(SHIELD_KNOWN, known_row(ctx, known, known_look(ctx)));
	if (!bits) {
		cpu->total.by_default++;
		return shield_drop_or_pass(ctx, &cpu->total, p, SHIELD_NONE, shield_default);
	}
	n = shield_lowest(bits);
	rule = &resized(shield_rules)[n];
	if (!rule->plain || rule->action == SHIELD_CHALLENGE)
		return SHIELD_LONG_WAY;
	/* It may have to pass all the same. */
	if (rule->action == SHIELD_DROP && shield_cookies && shield_yields && shield_may_verify(p))
		return SHIELD_LONG_WAY;
	shield_count(cpu, rule->counter, p);
	return shield_drop_or_pass(ctx, &cpu->total, p, n * 4 + (rule->action & 3), rule->action & 3);
}

/* A packet that parse_common() knows, judged by rules of one word; limits, shadows, what expires and more than one challenge that
 * yields go the long way. */
static __always_inline int shield_common(struct xdp_md *ctx, const struct packet *p, __u64 on)
{
	struct shield_cpu *cpu = shield_cpu_of(on);
	struct shield_total *total = &cpu->total;
	__u32 found = SHIELD_NONE, action = shield_default, n;
	struct shield_cookie_cpu *known;
	struct shield_rule *rule;
	int verdict;
	__u64 bits;

	if (watch_on)
		shield_watch(p, shield_protected_v4(p), on, p->protocol == IPPROTO_UDP ? WATCH_UDP : watch_tcp_kind(p->flags));
	bits = shield_apply_common(p);
	/* What is to be done is all in that function: if not, all that is known by now would be put away and read back, also where no rule asks. */
	if (shield_uses[SHIELD_KNOWN] && bits & ~SHIELD_ROW(SHIELD_KNOWN, shield_unknown_row())) {
		known = known_cpu();
		if (known) {
			known->work.packet = *p;
			verdict = shield_common_known(ctx, bits);
			if (verdict != SHIELD_LONG_WAY)
				return verdict;
		}
		return shield_any(ctx, SHIELD_WATCHED);
	}
	if (bits) {
		n = shield_lowest(bits);
		rule = &resized(shield_rules)[n];
		action = rule->action & 3;
		if (!rule->plain) {
			if (shield_yields && (rule->flags & (SHIELD_YIELDS | SHIELD_SHADOW)) == SHIELD_YIELDS && !rule->expires_ns)
				return shield_common_yielding(ctx, p, cpu, n, bits & (bits - 1));
			return shield_any(ctx, SHIELD_WATCHED);
		}
		shield_count(cpu, rule->counter, p);
		found = n * 4 + action;
	} else {
		total->by_default++;
	}
	return shield_settle(ctx, total, p, found, action);
}

/* The heart has not beaten for longer than it may. The clock changes with the jiffies, which cost one load: while it beats, the clock is read only
 * when they, the beat, or the program have changed. */
static __always_inline bool shield_failed(struct shield_total *total)
{
	__u64 beat = *(volatile __u64 *)&shield_beat.at_ns, looked = (bpf_jiffies64() ^ beat) + shield_beat_ns, now;

	if (total->beat_looked == looked)
		return false;
	now = bpf_ktime_get_coarse_ns();
	if (now > beat && now - beat > shield_beat_ns)
		return true;
	total->beat_looked = looked;
	return false;
}

/* The verdict on a frame. */
static __always_inline int shield_judge(struct xdp_md *ctx)
{
	struct packet p = UNPARSED;
	__u64 on = bpf_get_smp_processor_id();
	struct shield_total *total;

	if (shield_beat_ns) {
		total = &shield_cpu_of(on)->total;
		if (shield_failed(total)) {
			if (shield_reports)
				shield_report.failed = 1;
			if (shield_fail_closed)
				return shield_any(ctx, SHIELD_CLOSED);
			total->failed_open++;
			return shield_end(ctx, CHAIN_NO_HEARTBEAT, SHIELD_NONE, shield_pass(ctx, total, bpf_xdp_get_buff_len(ctx)));
		}
	}
	if (shield_words == 1 && !parse_bare_ip && parse_common(ctx, &p))
		return shield_common(ctx, &p, on);
	return shield_any(ctx, 0);
}

SEC("xdp.frags")
int ek_shield(struct xdp_md *ctx)
{
	int verdict = shield_judge(ctx);

	if (!shield_crosses) {
		if (verdict == XDP_PASS)
			chain_go_on(ctx, CHAIN_FILTER);
		return verdict;
	}
	if (!chain_on || (verdict & 7) != XDP_REDIRECT)
		return verdict & 7;
	/* Two calls, each by an array that is a constant to the kernel: one by either would be a jump by a pointer, which costs ten times as
	 * much. What differs in the two branches keeps the compiler from making them one. */
	if (verdict & SHIELD_CROSSES_FIRST) {
		asm volatile("r0 = 1" ::: "r0");
		bpf_tail_call(ctx, &ek_rests, CHAIN_CROSSING);
		asm volatile("r0 = 1" ::: "r0");
	} else if (verdict & SHIELD_CROSSES_SECOND) {
		asm volatile("r0 = 2" ::: "r0");
		bpf_tail_call(ctx, &chain_rests_2nd, CHAIN_CROSSING);
		asm volatile("r0 = 2" ::: "r0");
	}
	return XDP_REDIRECT;
}

char _license[] SEC("license") = "Dual BSD/GPL";

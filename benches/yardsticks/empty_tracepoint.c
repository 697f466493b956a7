// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Yardstick: a program that does nothing on a tracepoint of the kernel, to hold `evenkeel ledger` against: whoever looks at every
 * drop pays at least this.
 *
 *   empty_tracepoint [TRACEPOINT=kfree_skb]
 *
 * Attaches `return 0` as tp_btf, as the ledger's program is attached, and waits for SIGINT.
 * Build: make empty_tracepoint (cc -O2 empty_tracepoint.c -lbpf). Needs root and a kernel with BTF. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_signal(int sig) { (void)sig; }

static void die(const char *what) { fprintf(stderr, "empty_tracepoint: %s: %s\n", what, strerror(errno)); exit(3); }

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "kfree_skb";
	int id = libbpf_find_vmlinux_btf_id(name, BPF_TRACE_RAW_TP);

	if (id < 0) {
		errno = -id;
		die(name);
	}
	struct bpf_insn code[] = { /* return 0; */
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0 },
		{ .code = BPF_JMP | BPF_EXIT } };
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_RAW_TP, .attach_btf_id = id);
	int prog = bpf_prog_load(BPF_PROG_TYPE_TRACING, "ek_empty", "GPL", code, sizeof(code) / sizeof(code[0]), &opts);

	if (prog < 0)
		die("bpf_prog_load");
	if (bpf_raw_tracepoint_open(NULL, prog) < 0)
		die("bpf_raw_tracepoint_open");
	struct sigaction act = { .sa_handler = on_signal };
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	pause();
	return 0;
}

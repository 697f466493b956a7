// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Yardstick: the barest sender on BPF_F_TEST_XDP_LIVE_FRAMES, to measure `evenkeel gen --backend xdp-live` against.
 *
 *   live_frames IFACE [SECONDS=5] [CPU=0] [BATCH=256]
 *
 * One core sends one unchanging 60-byte SYN to IFACE through a device map in a single long call; its XDP program is
 * two instructions and a tail (redirect). Nothing is rewritten, paced or counted per packet: the rate is what IFACE's own
 * tx_packets counter says. The peer of a veth must run NAPI (an XDP program on it, or `ethtool -K PEER gro on`).
 * Build: make live_frames (cc -O2 live_frames.c -lbpf). Needs root. */
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void on_alarm(int sig) { (void)sig; }

static void die(const char *what) { fprintf(stderr, "live_frames: %s: %s\n", what, strerror(errno)); exit(3); }

static unsigned long long tx_packets(const char *dev)
{
	char path[128];
	unsigned long long n = 0;

	snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/tx_packets", dev);
	FILE *f = fopen(path, "r");
	if (!f || fscanf(f, "%llu", &n) != 1)
		die(path);
	fclose(f);
	return n;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	/* Ethernet, IPv4 198.18.0.1 -> 198.19.0.1, TCP SYN 1024 -> 80, checksums right, padded to 60 bytes. */
	static unsigned char frame[60] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6,
		0xae, 0xaa, 198, 18, 0, 1, 198, 19, 0, 1, 4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0x1b, 0x4f };
	if (argc < 2)
		return fprintf(stderr, "usage: live_frames IFACE [SECONDS] [CPU] [BATCH]\n"), 2;
	int seconds = argc > 2 ? atoi(argv[2]) : 5, cpu = argc > 3 ? atoi(argv[3]) : 0, batch = argc > 4 ? atoi(argv[4]) : 256;
	unsigned ifindex = if_nametoindex(argv[1]), key = 0;
	cpu_set_t set;

	if (!ifindex)
		die(argv[1]);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
	int map = bpf_map_create(BPF_MAP_TYPE_DEVMAP, "ek_bare_dev", 4, 4, 1, NULL);
	if (map < 0 || bpf_map_update_elem(map, &key, &ifindex, 0))
		die("device map");
	struct bpf_insn code[] = { /* return bpf_redirect_map(&map, 0, 0); */
		{ .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map }, { 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3 },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT } };
	int prog = bpf_prog_load(BPF_PROG_TYPE_XDP, "ek_bare", "GPL", code, sizeof(code) / sizeof(code[0]), NULL);
	if (prog < 0)
		die("bpf_prog_load");
	struct sigaction act = { .sa_handler = on_alarm }; /* no SA_RESTART: the alarm ends the call */
	sigaction(SIGALRM, &act, NULL);
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = sizeof(frame), .repeat = 1u << 31,
		    .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = batch);
	unsigned long long before = tx_packets(argv[1]);
	double start = now();
	alarm(seconds);
	int err = bpf_prog_test_run_opts(prog, &opts);
	double took = now() - start;
	if (err && err != -EINTR)
		die("BPF_PROG_TEST_RUN");
	printf("%.3f Mpps in %.2f s\n", (tx_packets(argv[1]) - before) / took / 1e6, took);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Yardstick: the barest AF_XDP reader on libxdp, to measure `evenkeel capture --backend xdp` against.
 *
 *   xsk_rx IFACE [SECONDS=0] [CPU=1] [FRAMES=4096] [NAP_US=20] [QUEUE=0]
 *
 * One queue, native mode, libxdp's default program. It touches the first word of each frame, gives the frame back, and prints once a
 * second what it received and what the socket lost. NAP_US: how long it sleeps when the ring was found empty; 0 spins,
 * -1 sleeps in poll(2). SECONDS 0: until SIGINT. Build: make xsk_rx (cc -O2 xsk_rx.c -lxdp -lbpf). Needs root. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <xdp/xsk.h>

#define FRAME_BYTES 2048
#define BATCH 256

static volatile sig_atomic_t stop;

static void on_signal(int sig) { (void)sig; stop = 1; }

static void die(const char *what, int error)
{
	fprintf(stderr, "xsk_rx: %s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(3);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static unsigned long long lost(int fd)
{
	struct xdp_statistics s;
	socklen_t len = sizeof(s);

	if (getsockopt(fd, SOL_XDP, XDP_STATISTICS, &s, &len))
		die("XDP_STATISTICS", errno);
	return s.rx_dropped + s.rx_ring_full;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: xsk_rx IFACE [SECONDS=0] [CPU=1] [FRAMES=4096] [NAP_US=20] [QUEUE=0]\n");
		return 2;
	}
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	int cpu = argc > 3 ? atoi(argv[3]) : 1, nap = argc > 5 ? atoi(argv[5]) : 20, queue = argc > 6 ? atoi(argv[6]) : 0;
	unsigned frames = argc > 4 ? atoi(argv[4]) : 4096, at;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);

	struct xsk_ring_prod fill;
	struct xsk_ring_cons done, rx;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_umem_config uc = { .fill_size = frames, .comp_size = 64, .frame_size = FRAME_BYTES };
	struct xsk_socket_config sc = { .rx_size = frames, .xdp_flags = XDP_FLAGS_DRV_MODE, .bind_flags = XDP_USE_NEED_WAKEUP };
	char *area = mmap(0, (size_t)frames * FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int e;

	if (area == MAP_FAILED)
		die("mmap", errno);
	if ((e = xsk_umem__create(&umem, area, (size_t)frames * FRAME_BYTES, &fill, &done, &uc)))
		die("xsk_umem__create", e);
	if ((e = xsk_socket__create(&xsk, argv[1], queue, umem, &rx, NULL, &sc)))
		die("xsk_socket__create", e);
	if (xsk_ring_prod__reserve(&fill, frames, &at) != frames)
		die("fill ring", ENOSPC);
	for (unsigned i = 0; i < frames; i++)
		*xsk_ring_prod__fill_addr(&fill, at + i) = (__u64)i * FRAME_BYTES;
	xsk_ring_prod__submit(&fill, frames);

	struct pollfd p = { .fd = xsk_socket__fd(xsk), .events = POLLIN };
	struct timespec t = { .tv_nsec = nap > 0 ? nap * 1000L : 0 };
	unsigned long long n = 0, n0 = 0, lost0 = 0, sum = 0;
	double start = now(), last = start;

	while (!stop && (seconds == 0 || now() - start < seconds)) {
		unsigned from, to = 0, got = xsk_ring_cons__peek(&rx, BATCH, &from);

		if (got) {
			xsk_ring_prod__reserve(&fill, got, &to);
			for (unsigned i = 0; i < got; i++) {
				const struct xdp_desc *d = xsk_ring_cons__rx_desc(&rx, from + i);

				sum += *(__u64 *)(area + d->addr);
				*xsk_ring_prod__fill_addr(&fill, to + i) = d->addr & ~(__u64)(FRAME_BYTES - 1);
			}
			xsk_ring_prod__submit(&fill, got);
			xsk_ring_cons__release(&rx, got);
			n += got;
		} else if (nap > 0) {
			nanosleep(&t, 0);
		} else if (nap < 0) {
			poll(&p, 1, 100);
		}
		if (now() - last >= 1) {
			double took = now() - last;
			unsigned long long l = lost(p.fd);

			printf("%.3f Mpps, %.3f lost\n", (n - n0) / took / 1e6, (l - lost0) / took / 1e6);
			fflush(stdout);
			n0 = n, lost0 = l, last = now();
		}
	}
	printf("%llu packets, %llu lost, checksum %llx, in %.2f s\n", n, lost(p.fd), sum, now() - start);
	xsk_socket__delete(xsk);
	xsk_umem__delete(umem);
	return 0;
}

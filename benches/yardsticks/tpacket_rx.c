// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Yardstick: the barest TPACKET_V3 reader. It walks every frame of every block, adds up counts and lengths, and does nothing
 * else, so that a real capture program can be held against what the ring itself can give.
 *
 *   tpacket_rx [-b BLOCK_KIB] [-n BLOCKS] [-t RETIRE_MS] [-s | -u MICROSECONDS] [-d SECONDS] IFACE
 *
 * Waits in poll(2), or spins on the block's status word (-s), or looks at it again after MICROSECONDS (-u). Ends on SIGINT, SIGTERM or after SECONDS, and prints one line of
 * JSON: frames walked, frames the kernel dropped for a full ring, bytes, and times the ring was found full.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static void die(const char *operation)
{
	fprintf(stderr, "tpacket_rx: %s: %s\n", operation, strerror(errno));
	exit(3);
}

int main(int argc, char **argv)
{
	unsigned block_kib = 256, blocks = 64, retire_ms = 60, seconds = 0, spin = 0, nap_us = 0;
	int option;

	while ((option = getopt(argc, argv, "b:n:t:d:u:s")) != -1) {
		switch (option) {
		case 'b': block_kib = atoi(optarg); break;
		case 'n': blocks = atoi(optarg); break;
		case 't': retire_ms = atoi(optarg); break;
		case 'd': seconds = atoi(optarg); break;
		case 's': spin = 1; break;
		case 'u': nap_us = atoi(optarg); break;
		default: return 2;
		}
	}
	if (optind + 1 != argc || !block_kib || !blocks) {
		fprintf(stderr, "usage: tpacket_rx [-b BLOCK_KIB] [-n BLOCKS] [-t RETIRE_MS] [-s | -u MICROSECONDS] [-d SECONDS] IFACE\n");
		return 2;
	}

	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGALRM, &action, NULL);

	/* Protocol 0 until the ring is there: nothing arrives outside it. */
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (fd < 0)
		die("socket(AF_PACKET)");
	int version = TPACKET_V3;
	if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)))
		die("PACKET_VERSION");
	struct tpacket_req3 ring = {
		.tp_block_size = block_kib * 1024,
		.tp_block_nr = blocks,
		.tp_frame_size = 2048,
		.tp_frame_nr = block_kib * 1024 / 2048 * blocks,
		.tp_retire_blk_tov = retire_ms,
	};
	if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof(ring)))
		die("PACKET_RX_RING");
	size_t size = (size_t)ring.tp_block_size * blocks;
	uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (base == MAP_FAILED)
		die("mmap");
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = if_nametoindex(argv[optind]),
	};
	if (!address.sll_ifindex || bind(fd, (struct sockaddr *)&address, sizeof(address)))
		die(argv[optind]);
	struct packet_mreq member = { .mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC };
	if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &member, sizeof(member)))
		die("PACKET_ADD_MEMBERSHIP");
	fprintf(stderr, "tpacket_rx: ready\n");
	if (seconds)
		alarm(seconds);

	uint64_t frames = 0, bytes = 0;
	struct pollfd wait = { .fd = fd, .events = POLLIN | POLLERR };
	for (unsigned at = 0;; at = at + 1 == blocks ? 0 : at + 1) {
		uint8_t *start = base + (size_t)at * ring.tp_block_size;
		struct tpacket_hdr_v1 *block = &((struct tpacket_block_desc *)start)->hdr.bh1;

		while (!(__atomic_load_n(&block->block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
			if (stop)
				goto end;
			if (spin)
				__builtin_ia32_pause();
			else if (nap_us)
				usleep(nap_us);
			else
				poll(&wait, 1, 100);
		}
		const uint8_t *frame = start + block->offset_to_first_pkt;
		for (unsigned left = block->num_pkts; left; left--) {
			const struct tpacket3_hdr *header = (const struct tpacket3_hdr *)frame;
			bytes += header->tp_len;
			frame += header->tp_next_offset;
		}
		frames += block->num_pkts;
		__atomic_store_n(&block->block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	}
end:;
	struct tpacket_stats_v3 statistics;
	socklen_t length = sizeof(statistics);
	if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &statistics, &length))
		die("PACKET_STATISTICS");
	printf("{\"received\":%llu,\"dropped\":%u,\"bytes\":%llu,\"freezes\":%u}\n", (unsigned long long)frames, statistics.tp_drops,
	       (unsigned long long)bytes, statistics.tp_freeze_q_cnt);
	return 0;
}

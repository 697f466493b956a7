/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A stream between two nodes, and one loop over several descriptors:
 *
 *     pipe get PORT > FILE                      pipe put NODE PORT < FILE
 *
 * Standard input and the link are waited for together, by poll(2). NODE is a name or an Ethernet address.
 *
 *     cc -o pipe pipe.c $(pkg-config --cflags --libs evenkeel-link)
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <evenkeel_link.h>

#define PIECE 65536

static struct ek_link *the_link;

/* Ends the program if a call failed; otherwise its result. */
static long done(long result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, ek_link_error(the_link), strerror((int)-result));
	return result;
}

/* Waits for the link, and for `fd` unless it is negative. True: there is something to read from `fd`. */
static int wait_for(int fd)
{
	struct pollfd waits[2] = {
		{ .fd = (int)done(ek_link_fd(the_link), "fd"), .events = POLLIN },
		{ .fd = fd, .events = POLLIN },
	};
	int sleeps = done(ek_link_arm(the_link), "arm") == 1;

	if (poll(waits, 2, sleeps ? -1 : 0) < 0 && errno != EINTR)
		err(1, "poll");
	done(ek_link_poll(the_link), "poll");
	return waits[1].revents != 0;
}

static void get(uint16_t port)
{
	static char bytes[PIECE];
	ek_link_conn peer;
	long came;

	done(ek_link_listen(the_link, port, EK_LINK_STREAM), "listen");
	while ((came = ek_link_accept(the_link, port, &peer)) == -EAGAIN)
		wait_for(-1);
	done(came, "accept");
	while ((came = ek_link_read(the_link, peer, bytes, sizeof(bytes))) != 0) {
		char *at = bytes;

		if (came == -EAGAIN) {
			wait_for(-1);
			continue;
		}
		done(came, "read");
		while (came > 0) {
			ssize_t written = write(STDOUT_FILENO, at, (size_t)came);

			if (written < 0)
				err(1, "standard output");
			at += written;
			came -= written;
		}
		/* While it writes, the other end waits for its acknowledgements. */
		done(ek_link_poll(the_link), "poll");
	}
	while (ek_link_close_connection(the_link, peer) == -EAGAIN || ek_link_state(the_link, peer) == EK_LINK_OPEN)
		wait_for(-1);
}

static void put(const char *node, uint16_t port)
{
	static char bytes[PIECE];
	size_t begin = 0, end = 0;
	int more = 1;
	ek_link_conn peer;

	done(ek_link_connect(the_link, node, port, EK_LINK_STREAM, &peer), "connect");
	while (done(ek_link_state(the_link, peer), "connect") == EK_LINK_OPENING)
		wait_for(-1);
	while (more || begin < end) {
		long written = begin < end ? ek_link_write(the_link, peer, bytes + begin, end - begin) : -EAGAIN;

		if (written != -EAGAIN) {
			begin += (size_t)done(written, "write");
		} else if (wait_for(begin == end ? STDIN_FILENO : -1)) {
			ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));

			if (got < 0)
				err(1, "standard input");
			more = got > 0;
			begin = 0;
			end = (size_t)got;
		}
		done(ek_link_state(the_link, peer), "the connection");
	}
	while (ek_link_close_connection(the_link, peer) == -EAGAIN || ek_link_state(the_link, peer) == EK_LINK_OPEN)
		wait_for(-1);
}

int main(int argc, char **argv)
{
	int gets = argc == 3 && !strcmp(argv[1], "get"), puts = argc == 4 && !strcmp(argv[1], "put");
	unsigned long port = gets || puts ? strtoul(argv[argc - 1], NULL, 10) : 0;

	if (port == 0 || port > UINT16_MAX)
		errx(2, "pipe get PORT, or pipe put NODE PORT");
	done(ek_link_open(&the_link), "open");
	if (gets)
		get((uint16_t)port);
	else
		put(argv[2], (uint16_t)port);
	ek_link_close(the_link);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Messages there and back, and one way, between two nodes:
 *
 *     pingpong server PORT [--epoll]                     pingpong client NODE PORT COUNT BYTES [--epoll]
 *     pingpong sink PORT                                 pingpong source NODE PORT COUNT BYTES
 *
 * server sends each message back; client measures. sink takes messages; source sends them, many per call. They spin; with --epoll they sleep between
 * messages, by a descriptor that could stand beside others. NODE is a name or an Ethernet address.
 *
 *     cc -o pingpong pingpong.c $(pkg-config --cflags --libs evenkeel-link)
 */
#include <err.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <evenkeel_link.h>

#define LONGEST 65536
#define MANY 32

static struct ek_link *the_link;
static int epoll_fd = -1;

/* Ends the program if a call failed; otherwise its result. */
static long done(long result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, ek_link_error(the_link), strerror((int)-result));
	return result;
}

static void use_epoll(void)
{
	struct epoll_event event = { .events = EPOLLIN };

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, (int)done(ek_link_fd(the_link), "fd"), &event) < 0)
		err(1, "epoll");
}

/* Takes what arrived: at once, or asleep until there is something. */
static void poll_link(void)
{
	struct epoll_event event;

	if (epoll_fd >= 0 && done(ek_link_arm(the_link), "arm") == 1)
		(void)epoll_wait(epoll_fd, &event, 1, -1);
	done(ek_link_poll(the_link), "poll");
}

static void send_all(ek_link_conn peer, const struct iovec *messages, size_t count)
{
	while (count > 0) {
		ssize_t taken = ek_link_send_many(the_link, peer, messages, count);

		if (taken == -EAGAIN) {
			poll_link();
			continue;
		}
		done(taken, "send");
		messages += taken;
		count -= (size_t)taken;
	}
}

/* The next messages; 0 if nothing follows. */
static size_t receive(ek_link_conn peer, struct iovec *places, size_t count)
{
	ssize_t came;

	while ((came = ek_link_receive_many(the_link, peer, places, count)) == -EAGAIN)
		poll_link();
	return (size_t)done(came, "receive");
}

static ek_link_conn accept_one(uint16_t port)
{
	ek_link_conn peer;
	int result;

	done(ek_link_listen(the_link, port, EK_LINK_MESSAGES), "listen");
	while ((result = ek_link_accept(the_link, port, &peer)) == -EAGAIN)
		poll_link();
	done(result, "accept");
	return peer;
}

static ek_link_conn connect_to(const char *node, uint16_t port)
{
	ek_link_conn peer;

	done(ek_link_connect(the_link, node, port, EK_LINK_MESSAGES, &peer), "connect");
	while (done(ek_link_state(the_link, peer), "connect") == EK_LINK_OPENING)
		poll_link();
	return peer;
}

/* Says that nothing follows, and waits until all has arrived. */
static void finish(ek_link_conn peer)
{
	while (ek_link_close_connection(the_link, peer) == -EAGAIN)
		poll_link();
	while (ek_link_state(the_link, peer) == EK_LINK_OPEN)
		poll_link();
}

static void server(uint16_t port)
{
	ek_link_conn peer = accept_one(port);
	static char bytes[LONGEST];
	struct iovec message = { bytes, sizeof(bytes) };

	while (receive(peer, &message, 1) == 1) {
		send_all(peer, &message, 1);
		message.iov_len = sizeof(bytes);
	}
	finish(peer);
}

static int by_time(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void client(const char *node, uint16_t port, size_t count, size_t len)
{
	ek_link_conn peer = connect_to(node, port);
	uint64_t *times = calloc(count, sizeof(*times));
	static char there[LONGEST], back[LONGEST];
	struct iovec out = { there, len };
	size_t i;

	if (!times)
		err(1, "memory");
	for (i = 0; i < count; i++) {
		struct iovec in = { back, sizeof(back) };
		uint64_t began = now_ns();

		memset(there, (int)i, len < 8 ? len : 8);
		send_all(peer, &out, 1);
		if (receive(peer, &in, 1) != 1)
			errx(1, "the server has closed");
		times[i] = now_ns() - began;
		if (in.iov_len != len || memcmp(there, back, len) != 0)
			errx(1, "message %zu came back changed", i);
	}
	qsort(times, count, sizeof(*times), by_time);
	printf("%zu messages of %zu bytes there and back: median %.3f us, 99 %% %.3f us\n", count, len,
	       (double)times[count / 2] / 1e3, (double)times[count * 99 / 100] / 1e3);
	free(times);
	finish(peer);
}

static void sink(uint16_t port)
{
	ek_link_conn peer = accept_one(port);
	static char bytes[MANY][LONGEST];
	size_t messages = 0, calls = 0, total = 0, count, i;

	for (;;) {
		struct iovec places[MANY];

		for (i = 0; i < MANY; i++)
			places[i] = (struct iovec){ bytes[i], LONGEST };
		count = receive(peer, places, MANY);
		if (count == 0)
			break;
		calls++;
		for (i = 0; i < count; i++, messages++) {
			if (places[i].iov_len > 0 && bytes[i][0] != (char)messages)
				errx(1, "message %zu is another one", messages);
			total += places[i].iov_len;
		}
	}
	printf("%zu messages, %zu bytes, in %zu calls\n", messages, total, calls);
	finish(peer);
}

static void source(const char *node, uint16_t port, size_t count, size_t len)
{
	ek_link_conn peer = connect_to(node, port);
	static char bytes[MANY][LONGEST];
	uint64_t began = now_ns();
	size_t sent = 0;

	while (sent < count) {
		struct iovec messages[MANY];
		size_t i, many = count - sent < MANY ? count - sent : MANY;

		for (i = 0; i < many; i++, sent++) {
			bytes[i][0] = (char)sent;
			messages[i] = (struct iovec){ bytes[i], len };
		}
		send_all(peer, messages, many);
		poll_link();
	}
	finish(peer);
	printf("%zu messages of %zu bytes in %.3f s\n", count, len, (double)(now_ns() - began) / 1e9);
}

/* A number of a command line, at most `most`. */
static size_t number(const char *text, size_t most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || value > most)
		errx(2, "%s is no number up to %zu", text, most);
	return value;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int epoll = strcmp(argv[argc - 1], "--epoll") == 0, words = argc - epoll, result;
	int answers = words == 3 && (!strcmp(what, "server") || !strcmp(what, "sink"));
	int asks = words == 6 && (!strcmp(what, "client") || !strcmp(what, "source"));
	uint16_t port;

	if (!answers && !asks)
		errx(2, "pingpong server|sink PORT, or pingpong client|source NODE PORT COUNT BYTES; --epoll to sleep");
	port = (uint16_t)number(argv[answers ? 2 : 3], UINT16_MAX);
	if (asks && number(argv[4], SIZE_MAX / sizeof(uint64_t)) == 0)
		errx(2, "at least one message is needed");
	result = ek_link_open(&the_link);
	done(result, "open");
	if (epoll)
		use_epoll();
	if (!strcmp(what, "server"))
		server(port);
	else if (!strcmp(what, "sink"))
		sink(port);
	else if (!strcmp(what, "client"))
		client(argv[2], port, number(argv[4], SIZE_MAX), number(argv[5], LONGEST));
	else
		source(argv[2], port, number(argv[4], SIZE_MAX), number(argv[5], LONGEST));
	ek_link_close(the_link);
	return 0;
}

/* A server of four processes that all block in accept, and their clients: what a program of sockets does. Says what differs from TCP. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)

static int family;

static void loopback(struct sockaddr_storage *at, socklen_t *len, int port)
{
	memset(at, 0, sizeof *at);
	if (family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)at;
		*in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		*len = sizeof *in;
	} else {
		/* An IPv4 address in an IPv6 socket. */
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)at;
		*in = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
		CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &in->sin6_addr) == 1);
		*len = sizeof *in;
	}
}

static int port_of(struct sockaddr_storage *at, socklen_t len)
{
	CHECK(at->ss_family == family);
	CHECK(len == (family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)));
	return ntohs(family == AF_INET ? ((struct sockaddr_in *)at)->sin_port : ((struct sockaddr_in6 *)at)->sin6_port);
}

static int name(int fd, int peer)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof at;
	CHECK((peer ? getpeername : getsockname)(fd, (struct sockaddr *)&at, &len) == 0);
	return port_of(&at, len);
}

static int option(int fd, int level, int which)
{
	int value = -1;
	socklen_t len = sizeof value;
	CHECK(getsockopt(fd, level, which, &value, &len) == 0 && len == sizeof value);
	return value;
}

/* Accepts one connection, and answers with the two ports of the client that it sees. */
static void serve(int listener)
{
	alarm(30);
	struct sockaddr_storage at;
	socklen_t len = sizeof at;
	int fd = accept(listener, (struct sockaddr *)&at, &len);
	CHECK(fd >= 0);
	int seen[2] = {port_of(&at, len), name(fd, 1)};
	char byte;
	CHECK(read(fd, &byte, 1) == 1 && byte == 'q');
	CHECK(write(fd, seen, sizeof seen) == sizeof seen);
	CHECK(read(fd, &byte, 1) == 1 && byte == 'd');
	CHECK(read(fd, &byte, 1) == 1 && byte == 'f');
	CHECK(read(fd, &byte, 1) == 0);
	exit(0);
}

static void client(int port, int nonblocking)
{
	struct sockaddr_storage at;
	socklen_t len;
	loopback(&at, &len, port);
	int one = 1, fd = socket(family, SOCK_STREAM | (nonblocking ? SOCK_NONBLOCK : 0) | SOCK_CLOEXEC, 0);
	struct timeval limit = {.tv_sec = 7}, seen_limit;
	socklen_t limit_len = sizeof seen_limit;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	int done = connect(fd, (struct sockaddr *)&at, len);
	CHECK(done == 0 || (nonblocking && errno == EINPROGRESS));
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	CHECK(poll(&ready, 1, 5000) == 1 && ready.revents == POLLOUT);
	CHECK(option(fd, SOL_SOCKET, SO_ERROR) == 0);
	/* After one that was under way the kernel's TCP says once that it is done. */
	int again = connect(fd, (struct sockaddr *)&at, len);
	CHECK((again == 0 && done == -1) || (again == -1 && errno == EISCONN));
	CHECK(option(fd, SOL_SOCKET, SO_DOMAIN) == family && option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 && option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
	CHECK(option(fd, IPPROTO_TCP, TCP_MAXSEG) > 500);
	CHECK(name(fd, 1) == port);
	CHECK(!!(fcntl(fd, F_GETFL) & O_NONBLOCK) == nonblocking && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
	CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &seen_limit, &limit_len) == 0 && seen_limit.tv_sec == 7);

	CHECK(write(fd, "q", 1) == 1);
	int seen[2];
	ready.events = POLLIN;
	CHECK(poll(&ready, 1, 5000) == 1 && read(fd, seen, sizeof seen) == sizeof seen);
	CHECK(seen[0] == name(fd, 0) && seen[1] == seen[0]);

	int copy = dup(fd);
	CHECK(copy >= 0 && write(copy, "d", 1) == 1 && close(copy) == 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK(name(fd, 1) == port && write(fd, "f", 1) == 1);
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	char byte;
	CHECK(poll(&ready, 1, 5000) == 1 && read(fd, &byte, 1) == 0);
	CHECK(close(fd) == 0);
}

int main(int argc, char **argv)
{
	alarm(30);
	family = argc > 1 && !strcmp(argv[1], "6") ? AF_INET6 : AF_INET;
	struct sockaddr_storage at;
	socklen_t len;
	loopback(&at, &len, 0);
	int listener = socket(family, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1000000) == 0);
	int port = name(listener, 0);
	pid_t servers[4];
	for (int i = 0; i < 4; i++)
		if ((servers[i] = fork()) == 0)
			serve(listener);
	for (int i = 0; i < 4; i++)
		client(port, i & 1);
	for (int i = 0; i < 4; i++) {
		int status;
		CHECK(waitpid(servers[i], &status, 0) == servers[i] && status == 0);
	}
	CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
	CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
	CHECK(accept(999, NULL, NULL) == -1 && errno == EBADF);
	CHECK(connect(listener, (struct sockaddr *)1, len) == -1 && errno == EFAULT);
	CHECK(close(listener) == 0);
	/* The port is free as soon as close has returned. */
	loopback(&at, &len, port);
	listener = socket(family, SOCK_STREAM, 0);
	int one = 1;
	CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
	CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0);
	printf("all is as with TCP\n");
	return 0;
}

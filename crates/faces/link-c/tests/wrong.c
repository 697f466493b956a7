/* What calls answer to wrong arguments, and to peers and brokers that go. Its test does what it prints, and answers each line with one. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <evenkeel_link.h>

#define MANY 300
#define LONG_NS 10000000000

static struct ek_link *ek;

#define CHECK(is_so)                                                                                   \
	do {                                                                                           \
		if (!(is_so)) {                                                                        \
			printf("%d: not so: %s; the last errors: `%s`, `%s`\n", __LINE__, #is_so,      \
			       ek ? ek_link_error(ek) : "", ek_link_error(NULL));                      \
			exit(1);                                                                       \
		}                                                                                      \
	} while (0)

/* That a call fails with a number, and a sentence with this word. */
#define FAILS(call, number, word) FAILS_WITH(ek, call, number, word)
#define FAILS_WITH(handle, call, number, word)                                                         \
	do {                                                                                           \
		long result_ = (long)(call);                                                           \
		if (result_ != -(number))                                                              \
			printf("%ld, not %d\n", result_, -(number));                                   \
		CHECK(result_ == -(number));                                                           \
		CHECK(strstr(ek_link_error(handle), word) != NULL);                                    \
	} while (0)

static void ask_for(const char *what)
{
	char line[16];

	puts(what);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin) != NULL);
}

static volatile sig_atomic_t signalled;

static void on_alarm(int signal)
{
	signalled = signal;
}

static ek_link_conn opened(const char *node, uint16_t port)
{
	ek_link_conn peer = 0;

	CHECK(ek_link_connect(ek, node, port, EK_LINK_MESSAGES, &peer) == 0 && peer != 0);
	while (ek_link_state(ek, peer) == EK_LINK_OPENING)
		CHECK(ek_link_wait(ek, 0, LONG_NS) >= 0);
	CHECK(ek_link_state(ek, peer) == EK_LINK_OPEN);
	return peer;
}

static void failed(const char *node, uint16_t port, int kind, int number, const char *word)
{
	ek_link_conn peer;

	CHECK(ek_link_connect(ek, node, port, kind, &peer) == 0);
	while (ek_link_state(ek, peer) == EK_LINK_OPENING)
		CHECK(ek_link_wait(ek, 0, LONG_NS) >= 0);
	FAILS(ek_link_state(ek, peer), number, word);
}

static void echoes(ek_link_conn peer, const char *text)
{
	char place[64];
	struct iovec out = { (void *)text, strlen(text) }, in = { place, sizeof(place) };
	ssize_t came;

	CHECK(ek_link_send_many(ek, peer, &out, 1) == 1);
	while ((came = ek_link_receive_many(ek, peer, &in, 1)) == -EAGAIN)
		CHECK(ek_link_wait(ek, 0, LONG_NS) >= 0);
	CHECK(came == 1 && in.iov_len == out.iov_len && memcmp(place, text, in.iov_len) == 0);
}

static void nulls(void)
{
	ek_link_conn peer;
	char address[EK_LINK_ADDRESS_BYTES];
	struct iovec none = { NULL, 1 };

	FAILS_WITH(NULL, ek_link_open(NULL), EINVAL, "NULL");
	ek_link_close(NULL);
	FAILS_WITH(NULL, ek_link_poll(NULL), EINVAL, "handle is NULL");
	FAILS_WITH(NULL, ek_link_wait(NULL, 0, 0), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_fd(NULL), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_arm(NULL), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_listen(NULL, 2000, 0), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_stop_listening(NULL, 2000), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_accept(NULL, 2000, &peer), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_connect(NULL, "B", 2000, 0, &peer), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_state(NULL, 1), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_peer(NULL, 1, address), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_address(NULL, address), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_nodes(NULL, NULL, 0), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_close_connection(NULL, 1), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_abort(NULL, 1), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_send_many(NULL, 1, &none, 1), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_receive_many(NULL, 1, &none, 1), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_write(NULL, 1, "x", 1), EINVAL, "handle");
	FAILS_WITH(NULL, ek_link_read(NULL, 1, address, 1), EINVAL, "handle");
}

static void without_a_connection(void)
{
	ek_link_conn peer = 7;
	struct ek_link_node nodes[4];
	char address[EK_LINK_ADDRESS_BYTES];

	CHECK(ek_link_error(ek)[0] == 0);
	FAILS(ek_link_listen(ek, 0, EK_LINK_MESSAGES), EADDRNOTAVAIL, "49151");
	FAILS(ek_link_listen(ek, 49152, EK_LINK_MESSAGES), EADDRNOTAVAIL, "49151");
	FAILS(ek_link_listen(ek, 2100, 2), EINVAL, "EK_LINK_STREAM");
	FAILS(ek_link_accept(ek, 2100, &peer), EINVAL, "ek_link_listen");
	CHECK(ek_link_listen(ek, 2100, EK_LINK_STREAM) == 0);
	FAILS(ek_link_listen(ek, 2100, EK_LINK_STREAM), EADDRINUSE, "2100");
	FAILS(ek_link_accept(ek, 2100, NULL), EINVAL, "NULL");
	FAILS(ek_link_accept(ek, 2100, &peer), EAGAIN, "nobody");
	CHECK(ek_link_stop_listening(ek, 2100) == 0);
	FAILS(ek_link_stop_listening(ek, 2100), EINVAL, "ek_link_listen");
	CHECK(ek_link_listen(ek, 2100, EK_LINK_MESSAGES) == 0);

	FAILS(ek_link_connect(ek, NULL, 1, 0, &peer), EINVAL, "NULL");
	FAILS(ek_link_connect(ek, "B", 1, 0, NULL), EINVAL, "NULL");
	FAILS(ek_link_connect(ek, "B", 1, -1, &peer), EINVAL, "EK_LINK_MESSAGES");
	FAILS(ek_link_connect(ek, "nobody", 1, 0, &peer), EHOSTUNREACH, "nobody");
	FAILS(ek_link_connect(ek, "\xff", 1, 0, &peer), EINVAL, "UTF-8");
	CHECK(peer == 7);
	FAILS(ek_link_state(ek, 0), ENOTCONN, "no connection");
	FAILS(ek_link_state(ek, 12345), ENOTCONN, "no connection");
	FAILS(ek_link_peer(ek, 12345, address), ENOTCONN, "no connection");
	FAILS(ek_link_peer(ek, 12345, NULL), EINVAL, "NULL");
	FAILS(ek_link_write(ek, 12345, "x", 1), ENOTCONN, "no connection");
	FAILS(ek_link_close_connection(ek, 12345), ENOTCONN, "no connection");
	FAILS(ek_link_abort(ek, 12345), ENOTCONN, "no connection");

	while (ek_link_nodes(ek, NULL, 0) == 0)
		usleep(10000);
	FAILS(ek_link_nodes(ek, NULL, 1), EINVAL, "NULL");
	CHECK(ek_link_nodes(ek, nodes, 4) == 1);
	CHECK(!strcmp(nodes[0].name, "B") && strlen(nodes[0].address) == EK_LINK_ADDRESS_BYTES - 1);
	FAILS(ek_link_address(ek, NULL), EINVAL, "NULL");
	CHECK(ek_link_address(ek, address) == 0 && strlen(address) == EK_LINK_ADDRESS_BYTES - 1);
	CHECK(strcmp(address, nodes[0].address) != 0);
	CHECK(ek_link_fd(ek) >= 0 && ek_link_fd(ek) == ek_link_fd(ek));
}

static void messages(ek_link_conn peer)
{
	static char bytes[400000], back[MANY][8];
	struct iovec many[MANY], places[MANY];
	size_t i, came = 0;
	ssize_t taken;

	FAILS(ek_link_send_many(ek, peer, NULL, 0), EINVAL, "0");
	FAILS(ek_link_send_many(ek, peer, NULL, 1), EINVAL, "NULL");
	FAILS(ek_link_receive_many(ek, peer, NULL, 0), EINVAL, "0");
	FAILS(ek_link_receive_many(ek, peer, NULL, 1), EINVAL, "NULL");
	many[0] = (struct iovec){ NULL, 1 };
	FAILS(ek_link_send_many(ek, peer, many, 1), EFAULT, "NULL");
	FAILS(ek_link_receive_many(ek, peer, many, 1), EFAULT, "NULL");
	many[0] = (struct iovec){ bytes, sizeof(bytes) };
	FAILS(ek_link_send_many(ek, peer, many, 1), EMSGSIZE, "longer");
	many[0] = (struct iovec){ bytes, (size_t)-1 };
	FAILS(ek_link_send_many(ek, peer, many, 1), EINVAL, "address space");
	FAILS(ek_link_send_many(ek, peer, many, (size_t)-1), EINVAL, "address space");
	FAILS(ek_link_write(ek, peer, "x", 1), EPROTOTYPE, "ek_link_send_many");
	FAILS(ek_link_read(ek, peer, bytes, 1), EPROTOTYPE, "ek_link_receive_many");
	many[0] = (struct iovec){ bytes, 1 };
	FAILS(ek_link_receive_many(ek, peer, many, 1), EAGAIN, "nothing has come");

	/* A place that is too short says what it takes. */
	many[0] = (struct iovec){ (void *)"four", 4 };
	CHECK(ek_link_send_many(ek, peer, many, 1) == 1);
	do {
		CHECK(ek_link_wait(ek, 0, LONG_NS) >= 0);
		places[0] = (struct iovec){ back[0], 3 };
		taken = ek_link_receive_many(ek, peer, places, 1);
	} while (taken == -EAGAIN);
	FAILS(taken, EMSGSIZE, "iov_len");
	CHECK(places[0].iov_len == 4);
	CHECK(ek_link_receive_many(ek, peer, places, 1) == 1 && memcmp(back[0], "four", 4) == 0);

	/* There is room for 256 frames; the empty message is one. */
	for (i = 0; i < MANY; i++)
		many[i] = (struct iovec){ i == 0 ? NULL : &bytes[i], i == 0 ? 0 : 1 }, bytes[i] = (char)i;
	taken = ek_link_send_many(ek, peer, many, MANY);
	CHECK(taken == 256);
	FAILS(ek_link_send_many(ek, peer, many, 1), EAGAIN, "no room");
	while (came < 256) {
		for (i = came; i < MANY; i++)
			places[i] = (struct iovec){ back[i], 8 };
		taken = ek_link_receive_many(ek, peer, places + came, MANY - came);
		if (taken == -EAGAIN) {
			CHECK(ek_link_wait(ek, 0, LONG_NS) >= 0);
			continue;
		}
		CHECK(taken > 0);
		came += (size_t)taken;
	}
	CHECK(came == 256 && places[0].iov_len == 0);
	for (i = 1; i < came; i++)
		CHECK(places[i].iov_len == 1 && back[i][0] == (char)i);
}

int main(int argc, char **argv)
{
	char address[EK_LINK_ADDRESS_BYTES];
	ek_link_conn peer;

	(void)argv;
	CHECK(strcmp(ek_link_version(), EK_LINK_VERSION) == 0);
	nulls();
	if (argc == 1) {
		ek = (void *)&peer;
		int result = ek_link_open(&ek);

		CHECK(ek == NULL);
		FAILS(result, ENOENT, "evenkeel link serve");
		return 0;
	}

	CHECK(ek_link_open(&ek) == 0 && ek != NULL);
	without_a_connection();
	peer = opened("B", 2000);
	CHECK(ek_link_peer(ek, peer, address) == 0);
	messages(peer);
	failed("B", 2000, EK_LINK_STREAM, EPROTOTYPE, "the connection ended");
	failed("B", 2001, EK_LINK_MESSAGES, ECONNREFUSED, "nobody listens");

	signal(SIGALRM, on_alarm);
	alarm(1);
	while (!signalled)
		CHECK(ek_link_wait(ek, 0, -1) >= 0);

	ask_for("stop the broker");
	echoes(peer, "goes on");
	FAILS(ek_link_listen(ek, 2200, EK_LINK_MESSAGES), ENOENT, "no broker");
	FAILS(ek_link_nodes(ek, NULL, 0), ENOENT, "no broker");
	FAILS(ek_link_connect(ek, "B", 2000, EK_LINK_MESSAGES, &peer), ENOENT, "no broker");
	CHECK(ek_link_abort(ek, opened(address, 2000)) == 0);

	ask_for("kill the server");
	while (ek_link_state(ek, peer) == EK_LINK_OPEN) {
		struct iovec message = { address, 1 };

		(void)ek_link_send_many(ek, peer, &message, 1);
		CHECK(ek_link_wait(ek, 0, 1000000) >= 0);
	}
	FAILS(ek_link_state(ek, peer), ECONNRESET, "the connection ended");
	FAILS(ek_link_send_many(ek, peer, &(struct iovec){ address, 1 }, 1), ECONNRESET, "the connection ended");
	FAILS(ek_link_receive_many(ek, peer, &(struct iovec){ address, 1 }, 1), ECONNRESET, "the connection ended");
	while (ek_link_state(ek, peer) == -ECONNRESET)
		CHECK(ek_link_wait(ek, 0, 100000000) >= 0);
	FAILS(ek_link_state(ek, peer), ENOTCONN, "no connection");
	ek_link_close(ek);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * evenkeel_link.h: messages and streams between the nodes of an Ethernet.
 *
 *     struct ek_link *link;
 *     ek_link_conn peer;
 *     struct iovec message = { .iov_base = "hello", .iov_len = 5 };
 *
 *     if (ek_link_open(&link) < 0 || ek_link_connect(link, "db1", 2000, EK_LINK_MESSAGES, &peer) < 0)
 *             errx(1, "%s", ek_link_error(NULL));
 *     while (ek_link_state(link, peer) == EK_LINK_OPENING)
 *             ek_link_wait(link, 0, -1);
 *     ek_link_send_many(link, peer, &message, 1);
 *
 * Start a broker on each node first: `evenkeel link serve eth0`. docs/run/link-c.md has whole programs.
 *
 * Rules of all calls
 *
 * - Nothing happens but in calls: frames are read and lost ones sent again in ek_link_poll and ek_link_wait. Call one of them again and again; a peer that
 *   waits for an answer gives the connection up after 10 s.
 * - No call blocks, but ek_link_wait, and those that ask the broker: ek_link_open, _listen, _stop_listening, _nodes, and _connect by a name.
 * - A negative result is a number of errno.h with its sign turned. ek_link_error says why in a sentence. errno itself means nothing.
 * - A handle is for one thread at a time. Several threads open a handle each, or take turns. Nothing of it may be used in a signal handler, or in a child
 *   after fork(2).
 * - A handle stays in the network namespace in which it was opened.
 * - -ENOTRECOVERABLE: evenkeel itself erred; close the handle and open another.
 * - NULL for a handle, a result or a name is refused with -EINVAL; a handle that was closed is not recognised.
 */
#ifndef EVENKEEL_LINK_H
#define EVENKEEL_LINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; that of the library is ek_link_version(). */
#define EK_LINK_VERSION "0.1.0"

/* A program's ports and connections. */
struct ek_link;

/* A connection of a handle. 0 is none. Numbers of ended connections are not used again soon. */
typedef uint32_t ek_link_conn;

/* What a connection carries. */
enum ek_link_kind {
	EK_LINK_MESSAGES = 0, /* messages, each whole, in order and once */
	EK_LINK_STREAM = 1,   /* bytes in order */
};

/* Where a connection is. One that failed is a negative result of ek_link_state. */
enum ek_link_state {
	EK_LINK_OPENING = 1,   /* offered, not accepted yet */
	EK_LINK_OPEN = 2,      /* both ends can send */
	EK_LINK_TIME_WAIT = 3, /* both ends have sent all, and heard so */
};

#define EK_LINK_NAME_BYTES 256
#define EK_LINK_ADDRESS_BYTES 18

/* A node that the broker has heard in the last 15 s. Both texts end with a 0. */
struct ek_link_node {
	char name[EK_LINK_NAME_BYTES];
	char address[EK_LINK_ADDRESS_BYTES]; /* such as 02:00:00:00:00:01 */
};

/* The version of the library, such as "0.1.0". */
const char *ek_link_version(void);

/*
 * Why the last call with this handle that failed did, as a sentence in English. With NULL: why this thread's last call without a handle failed, which is
 * ek_link_open, and all others if they are given NULL. The text is good until the next call of that kind fails, or the handle is closed.
 */
const char *ek_link_error(const struct ek_link *link);

/*
 * Asks the broker of this network namespace for 64 ports to connect from, and writes a handle to *link; NULL if it fails.
 * -ENOENT: no broker serves here. -EACCES: the broker serves programs of root, or of a group, only. -EADDRNOTAVAIL: all ports are taken.
 */
int ek_link_open(struct ek_link **link);

/*
 * Gives all back. The other ends of connections that are open are told that this one is gone: what has not arrived is lost. To lose nothing, close each
 * connection, and wait until its state is another than EK_LINK_OPEN. NULL does nothing.
 */
void ek_link_close(struct ek_link *link);

/* Writes this node's Ethernet address, EK_LINK_ADDRESS_BYTES bytes with the 0 at the end. */
int ek_link_address(struct ek_link *link, char *address);

/*
 * Writes the other nodes, by name, at most `count` of them; how many there are, which may be more. `nodes` may be NULL if `count` is 0.
 * -ENOENT: the broker is gone.
 */
int ek_link_nodes(struct ek_link *link, struct ek_link_node *nodes, size_t count);

/*
 * Listens on a port from 1 to 49151, below 1024 for root only, for connections of a kind. Up to 128 wait to be accepted.
 * -EADDRINUSE: somebody of this node listens there. -EADDRNOTAVAIL, -EACCES: not that port. -ENOENT: the broker is gone.
 */
int ek_link_listen(struct ek_link *link, uint16_t port, int kind);

/* Listens there no longer. Connections that were accepted go on; those that wait are refused. -EINVAL: nobody listens there. */
int ek_link_stop_listening(struct ek_link *link, uint16_t port);

/* Writes the next connection to a port. -EAGAIN: nobody has connected. -EINVAL: nobody listens there. */
int ek_link_accept(struct ek_link *link, uint16_t port, ek_link_conn *connection);

/*
 * Offers a connection to a port of a node, by its name or its address, and writes it. ek_link_state says when it is open.
 * -EHOSTUNREACH: no node of that name was heard. -ENOTUNIQ: several were. -ENOENT: the broker that knows names is gone. -EADDRNOTAVAIL: all 64 ports
 * are in use with that port of that node.
 */
int ek_link_connect(struct ek_link *link, const char *node, uint16_t port, int kind, ek_link_conn *connection);

/*
 * An enum ek_link_state, or why the connection failed:
 * -ECONNREFUSED: nobody listens there. -ECONNRESET: the other program ended, was killed, or gave it up. -ETIMEDOUT: silence for 10 s.
 * -EPROTOTYPE: the other end has the other kind. -EACCES: forbidden there. -EPROTONOSUPPORT: the node speaks another version of the protocol.
 * -ENOTCONN: there is no such connection, or none any more: 2 s after its end it is forgotten.
 */
int ek_link_state(struct ek_link *link, ek_link_conn connection);

/* Writes the Ethernet address of the other node, EK_LINK_ADDRESS_BYTES bytes with the 0 at the end. -ENOTCONN. */
int ek_link_peer(struct ek_link *link, ek_link_conn connection, char *address);

/*
 * Says that nothing follows from this end; what was sent before still arrives, and what the other end sends is still received. -EAGAIN: no room for that
 * word; poll, and close again. -ENOTCONN.
 */
int ek_link_close_connection(struct ek_link *link, ek_link_conn connection);

/* Ends a connection at once: what has not arrived is lost, and the other end fails with -ECONNRESET. -ENOTCONN. */
int ek_link_abort(struct ek_link *link, ek_link_conn connection);

/*
 * Sends up to `count` messages, whole, in one flush; how many were taken, from the first on. Their bytes are copied. A message may be empty, and as long as
 * 256 frames of the interface (375,808 bytes at an MTU of 1500).
 * None was taken: -EAGAIN: no room (poll, and send again). -EMSGSIZE: too long. -EPIPE: this end is closed. -EPROTOTYPE: it is a stream. -ENOTCONN. Or
 * why the connection failed, as in ek_link_state.
 */
ssize_t ek_link_send_many(struct ek_link *link, ek_link_conn connection, const struct iovec *messages, size_t count);

/*
 * Receives up to `count` messages that earlier polls brought, each into a place, whose iov_len becomes the message's; how many.
 * 0: the other end has closed, and all was received. None was received: -EAGAIN: nothing yet. -EMSGSIZE: the first is longer than its place; it stays, and
 * the iov_len of the place says how long it is. -EPROTOTYPE: it is a stream. -ENOTCONN. Or why the connection failed, as in ek_link_state.
 */
ssize_t ek_link_receive_many(struct ek_link *link, ek_link_conn connection, struct iovec *places, size_t count);

/*
 * Sends bytes of a stream, as many as there is room for, at once; how many. Errors as ek_link_send_many.
 */
ssize_t ek_link_write(struct ek_link *link, ek_link_conn connection, const void *bytes, size_t count);

/*
 * Receives bytes of a stream that earlier polls brought, as many as are there and have room; how many. Results as ek_link_receive_many: 0 is the end.
 */
ssize_t ek_link_read(struct ek_link *link, ek_link_conn connection, void *bytes, size_t count);

/* Takes what arrived, does what is due, sends what is to be sent; how many frames arrived. It does not wait. A program that spins calls it again and again. */
int ek_link_poll(struct ek_link *link);

/*
 * Polls until a frame arrived: awake for the first `spin_ns` nanoseconds, asleep from then on, at most `timeout_ns` in all (negative: without limit); how
 * many frames arrived. 0: none in time, or a signal came while it slept.
 */
int ek_link_wait(struct ek_link *link, uint64_t spin_ns, int64_t timeout_ns);

/*
 * A descriptor for poll(2), select(2) and epoll(7) (level-triggered), with which a program waits for this handle beside others. It becomes readable when a
 * frame came or a timer is due. It is the same one in all calls, and the handle's: neither read nor close it.
 */
int ek_link_fd(struct ek_link *link);

/*
 * Makes ek_link_fd good for one sleep; the last call with this handle before it. 1: sleep. 0: there is something to do already: poll instead.
 * After the sleep poll, then receive all that is there: what a poll brought does not wake again.
 *
 *     for (;;) {
 *             if (ek_link_arm(link) == 1)
 *                     poll(descriptors, count, -1);
 *             ek_link_poll(link);
 *             ... receive until -EAGAIN, send ...
 *     }
 */
int ek_link_arm(struct ek_link *link);

#ifdef __cplusplus
}
#endif

#endif

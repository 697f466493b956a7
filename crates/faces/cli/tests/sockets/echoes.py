"""Echoes of random sizes over many connections, read and written in many ways: `echoes.py serve ADDRESS` and `echoes.py use ADDRESS SEED`. What comes
back is what was sent, or the program ends with 1. It knows nothing of link."""

import hashlib, os, random, select, selectors, socket, sys, threading, time

PORT, CONNECTIONS, MOST = 7400, 12, 1_000_000
FULL = 1 << 20


def waits(connection):
    while data := connection.recv(random.choice((1, 100, 4096, 65536))):
        connection.sendall(data)
    connection.close()


def looks(connection, kind):
    connection.setblocking(False)
    waiting, is_over = bytearray(), False
    epoll = select.epoll()
    epoll.register(connection, 0)
    while waiting or not is_over:
        reads, writes = not is_over and len(waiting) < FULL, bool(waiting)
        if kind == "epoll":
            epoll.modify(connection, select.EPOLLIN * reads | select.EPOLLOUT * writes)
            epoll.poll(5)
        elif kind == "poll":
            poll = select.poll()
            poll.register(connection, select.POLLIN * reads | select.POLLOUT * writes)
            poll.poll(5000)
        else:
            select.select([connection] * reads, [connection] * writes, [], 5)
        try:
            if reads:
                data = connection.recv(random.choice((100, 4096, 65536)))
                waiting += data
                is_over = not data
        except BlockingIOError:
            pass
        try:
            if waiting:
                del waiting[: connection.send(waiting[: random.choice((10, 5000, 100_000))])]
        except BlockingIOError:
            pass
    connection.close()


def serve(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, PORT), family=family, backlog=100)
    print("ready", flush=True)
    number = 0
    while True:
        connection, _ = listener.accept()
        number += 1
        kind = ("wait", "epoll", "poll", "select")[number % 4]
        target, args = (waits, (connection,)) if kind == "wait" else (looks, (connection, kind))
        threading.Thread(target=target, args=args, daemon=True).start()


class Sums:
    def __init__(self):
        self.sent, self.got, self.bytes = hashlib.sha256(), hashlib.sha256(), 0

    def came(self, data):
        self.got.update(data)
        self.bytes += len(data)


def both_ways(connection, dice, left, sums):
    """A thread reads, another one writes."""

    def read():
        while data := connection.recv(dice.choice((1, 50, 4096, 1 << 17))):
            sums.came(data)

    reader = threading.Thread(target=read)
    reader.start()
    while left:
        data = dice.randbytes(min(left, dice.choice((1, 10, 1000, 70_000))))
        sums.sent.update(data)
        if dice.random() < 0.3:
            assert connection.sendmsg([data[: len(data) // 2], data[len(data) // 2 :]]) == len(data), "a call that waits writes all"
        else:
            connection.sendall(data)
        left -= len(data)
        if dice.random() < 0.05:
            time.sleep(dice.random() * 0.003)
    connection.shutdown(socket.SHUT_WR)
    reader.join()


def in_turns(connection, dice, left, sums):
    while left:
        data = dice.randbytes(min(left, dice.choice((1, 10, 1000, 20_000))))
        sums.sent.update(data)
        connection.sendall(data)
        left -= len(data)
        sums.came(connection.recv(len(data), socket.MSG_WAITALL))
        if dice.random() < 0.02:
            time.sleep(dice.random() * 0.004)


def by_events(connection, dice, left, sums):
    connection.setblocking(False)
    total, waiting = left, b""
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
    while sums.bytes < total:
        if not (left or waiting):
            selector.modify(connection, selectors.EVENT_READ)
        for _, events in selector.select(5):
            try:
                if events & selectors.EVENT_READ:
                    data = connection.recv(65536)
                    assert data, "an end before all had come"
                    sums.came(data)
            except BlockingIOError:
                pass
            try:
                if events & selectors.EVENT_WRITE and (left or waiting):
                    if not waiting:
                        waiting = dice.randbytes(min(left, dice.choice((1, 1000, 30_000))))
                        sums.sent.update(waiting)
                        left -= len(waiting)
                    waiting = waiting[connection.send(waiting) :]
            except BlockingIOError:
                pass


def use(address, seed):
    wrong = []

    def one(number):
        dice = random.Random(seed * 1000 + number)
        connection = socket.create_connection((address, PORT))
        total, sums = dice.randrange(1, MOST), Sums()
        (both_ways, in_turns, by_events)[number % 3](connection, dice, total, sums)
        connection.close()
        if sums.got.digest() != sums.sent.digest() or sums.bytes != total:
            wrong.append((number, total, sums.bytes))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    hang = [number for number, thread in enumerate(threads) if thread.is_alive()]
    print(f"seed {seed}: wrong {wrong}, hang {hang}", flush=True)
    os._exit(1 if wrong or hang else 0)


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    use(sys.argv[2], int(sys.argv[3]))

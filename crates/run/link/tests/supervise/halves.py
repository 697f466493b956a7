"""What programs do around sockets: epoll, threads, signals, time-outs, asyncio, children. Each case is named by an argument."""
import asyncio, os, select, signal, socket, sys, threading, time


def listening(**options):
    return socket.create_server(("127.0.0.1", 0), **options)


def echo(listener, times=1):
    for _ in range(times):
        conn, _ = listener.accept()
        with conn:
            while data := conn.recv(4096):
                conn.sendall(data)


def asked(client, word=b"word"):
    client.sendall(word)
    assert client.recv(100) == word


def epoll_before_connect():
    """As nginx does: the descriptor is registered before it is connected."""
    listener = listening()
    threading.Thread(target=echo, args=(listener,), daemon=True).start()
    client, poll = socket.socket(), select.epoll()
    client.setblocking(False)
    poll.register(client, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
    client.connect_ex(listener.getsockname())
    assert (client.fileno(), select.EPOLLOUT) in poll.poll(5), "not writable"
    client.sendall(b"word")
    while True:
        # Room to write may be an event of its own.
        events = poll.poll(5)
        assert events, "no answer"
        if events[0][1] & select.EPOLLIN:
            break
    assert client.recv(100) == b"word"
    poll.modify(client, select.EPOLLIN)
    assert poll.poll(0) == []
    client.shutdown(socket.SHUT_WR)
    assert poll.poll(5) and client.recv(100) == b""
    poll.unregister(client)
    client.close()


def signal_while_accepting():
    """A handler that raises ends the accept; one that was set to go on does not; and no connection is lost by either."""
    listener, seen = listening(), []

    class Alarm(Exception):
        pass

    def raises(*_):
        raise Alarm

    signal.signal(signal.SIGALRM, raises)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        listener.accept()
        raise AssertionError("nobody connected")
    except Alarm:
        seen.append("raised")
    signal.signal(signal.SIGALRM, lambda *_: seen.append("went on"))
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    address = listener.getsockname()
    later = threading.Timer(0.5, lambda: asked(socket.create_connection(address)))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    later.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    echo(listener)
    later.join()
    assert seen == ["raised", "went on"], seen


def timeout():
    """An accept with SO_RCVTIMEO, and one of Python's own."""
    listener = listening()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, b"\0" * 8 + (100_000).to_bytes(8, "little"))
    try:
        listener.accept()
        raise AssertionError("nobody connected")
    except BlockingIOError:
        pass
    listener.settimeout(0.1)
    try:
        listener.accept()
        raise AssertionError("nobody connected")
    except TimeoutError:
        pass


def shutdown():
    """A listener that is shut down ends the accept of another thread."""
    listener = listening()
    threading.Timer(0.2, lambda: listener.shutdown(socket.SHUT_RDWR)).start()
    try:
        listener.accept()
        raise AssertionError("nobody connected")
    except OSError as error:
        assert error.errno == 22, error


def streams():
    """asyncio, with fifty connections at a time."""
    async def answer(reader, writer):
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def ask(port, at):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert writer.get_extra_info("peername") == ("127.0.0.1", port)
        assert writer.get_extra_info("socket").family == socket.AF_INET
        for round in range(10):
            word = f"{at} {round}".encode()
            writer.write(word)
            assert await reader.readexactly(len(word)) == word
        writer.close()
        await writer.wait_closed()

    async def both():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*[ask(port, at) for at in range(50)])

    asyncio.run(both())


def orphan():
    """The first process ends; its child goes on, and is supervised."""
    listener = listening()
    if os.fork():
        os._exit(3)
    os.setsid()
    while os.getppid() != int(os.environ["EK_SUPERVISOR"]):
        time.sleep(0.01)
    threading.Thread(target=echo, args=(listener,), daemon=True).start()
    with socket.create_connection(listener.getsockname()) as client:
        asked(client)


def outside():
    """A port that the supervisor does not know of is the kernel's."""
    port = socket.socket()
    port.bind(("127.0.0.1", 0))
    try:
        socket.create_connection(port.getsockname())
        raise AssertionError("nobody listens")
    except ConnectionRefusedError:
        pass


def full():
    """At the limit of descriptors accept fails, and the connection stays for the next."""
    import resource
    listener = listening()
    client = socket.create_connection(listener.getsockname())
    opened = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    while len(opened) < 30:
        try:
            opened.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            break
    try:
        listener.accept()
        raise AssertionError("there was no descriptor left")
    except OSError as error:
        assert error.errno == 24, error
    os.close(opened.pop())
    conn, peer = listener.accept()
    assert peer == client.getsockname() and conn.getpeername() == peer
    client.sendall(b"word")
    assert conn.recv(10) == b"word"


def user():
    """A worker of root's gives up root behind its listen."""
    # The encoding is loaded before the rights are given up: python's files may be root's.
    import encodings.idna
    listener = listening()
    os.setresuid(65534, 65534, 65534)
    threading.Thread(target=echo, args=(listener,), daemon=True).start()
    asked(socket.create_connection(listener.getsockname()))


def root_and_user():
    listener = listening()
    threading.Thread(target=echo, args=(listener,), daemon=True).start()
    asked(socket.create_connection(listener.getsockname()))
    user()


def waits():
    """Until it is told to end."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
    assert signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]) == {signal.SIGTERM}
    print("ready", flush=True)
    listening().accept()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done", sys.argv[1], flush=True)

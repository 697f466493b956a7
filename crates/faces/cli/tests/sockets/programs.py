"""What programs do with TCP sockets: `programs.py serve ADDRESS` and `programs.py use ADDRESS PEER [LEFT OUT]`. It knows nothing of link."""

import asyncio, ctypes, hashlib, os, select, signal, socket, struct, subprocess, sys, tempfile, time

ECHO, DIGEST, MUTE, ENDS, FULL, NOBODY = 7001, 7002, 7003, 7004, 7005, 7009
MUCH = 5_000_000


def child():
    """Forks; a child does not outlive its parent."""
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    return pid


def serve(address):
    echo = socket.create_server((address, ECHO))
    # Four processes take connections of one socket; their parent takes none.
    for _ in range(4):
        if child() == 0:
            while True:
                connection, peer = echo.accept()
                assert peer == connection.getpeername(), (peer, connection.getpeername())
                if child() == 0:
                    connection.sendall(f"{connection.getsockname()} {peer} {os.getppid()}\n".encode())
                    try:
                        while data := connection.recv(65536):
                            connection.sendall(data)
                    except (ConnectionResetError, BrokenPipeError):
                        pass
                    os._exit(0)
                connection.close()
    digest = socket.create_server((address, DIGEST))
    mute = socket.create_server((address, MUTE))
    ends = socket.create_server((address, ENDS))
    full = socket.create_server((address, FULL))
    if child() == 0:
        while True:
            connection, _ = full.accept()
            connection.sendall(bytes(MUCH))
            connection.close()
    kept = []
    print("ready", flush=True)
    while True:
        for ready in select.select([digest, mute, ends], [], [])[0]:
            connection, _ = ready.accept()
            if ready is digest:
                found = hashlib.sha256()
                while data := connection.recv(65536):
                    found.update(data)
                connection.sendall(found.hexdigest().encode())
                connection.close()
            elif ready is mute:
                kept.append(connection)
            else:
                # What came is not read: TCP tells the sender by a reset.
                time.sleep(0.2)
                connection.close()


def connected(peer, port=ECHO):
    connection = socket.create_connection((peer, port), timeout=10)
    connection.settimeout(None)
    return connection


def greeting(connection):
    line = b""
    while not line.endswith(b"\n"):
        line += connection.recv(1)
    return line.decode()


def echoes(connection, data):
    connection.sendall(data)
    assert connection.recv(len(data), socket.MSG_WAITALL) == data


def names(own, peer):
    connection = connected(peer)
    local = connection.getsockname()
    assert local[0] == own and connection.getpeername() == (peer, ECHO), (local, connection.getpeername())
    assert greeting(connection).startswith(f"{(peer, ECHO)} {local} ")


def processes(own, peer):
    all = [connected(peer) for _ in range(40)]
    taken = {greeting(connection).split()[-1] for connection in all}
    assert len({connection.getsockname() for connection in all}) == 40
    assert len(taken) > 1, taken


def options(own, peer):
    connection = connected(peer)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[0] == 1
    greeting(connection)
    for _ in range(40):
        echoes(connection, b"until the programs carry it themselves")
    time.sleep(0.2)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[0] == 1
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 7200
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    same = socket.socket(fileno=os.dup(connection.fileno()))
    assert same.family == socket.AF_INET and same.getpeername() == (peer, ECHO)


def fork(own, peer):
    connection = connected(peer)
    greeting(connection)
    child = os.fork()
    if child == 0:
        echoes(connection, b"of the child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    echoes(connection, b"of the parent")


def dup(own, peer):
    connection = connected(peer)
    greeting(connection)
    other = os.dup(connection.fileno())
    connection.close()
    os.write(other, b"still")
    assert os.read(other, 5) == b"still"
    os.close(other)


def run(own, peer):
    connection = connected(peer)
    greeting(connection)
    os.set_inheritable(connection.fileno(), True)
    fd = connection.fileno()
    subprocess.run(["sh", "-c", f"echo of the shell >&{fd}"], pass_fds=[fd], check=True)
    assert connection.recv(13, socket.MSG_WAITALL) == b"of the shell\n"


def passed(own, peer):
    connection = connected(peer)
    greeting(connection)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        got = socket.socket(fileno=socket.recv_fds(theirs, 1, 1)[1][0])
        assert got.getpeername() == (peer, ECHO)
        echoes(got, b"passed on")
        os._exit(0)
    socket.send_fds(ours, [b"x"], [connection.fileno()])
    connection.close()
    assert os.waitpid(child, 0)[1] == 0


def edge(own, peer):
    """Watched before it is connected, by edges."""
    connection = socket.socket()
    connection.setblocking(False)
    epoll = select.epoll()
    epoll.register(connection, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    assert connection.connect_ex((peer, ECHO)) in (0, 115)
    deadline = time.time() + 5
    seen, line = 0, b""
    while not line.endswith(b"\n"):
        assert time.time() < deadline, (seen, line)
        for fd, what in epoll.poll(1):
            assert fd == connection.fileno()
            seen |= what
            try:
                line += connection.recv(1000)
            except BlockingIOError:
                pass
    assert seen & select.EPOLLOUT and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    connection.send(b"again")
    seen = 0
    while not seen & select.EPOLLIN:
        events = epoll.poll(5)
        assert events, "no edge for the answer"
        seen |= events[0][1]
    assert connection.recv(100) == b"again"


def sendfile(own, peer):
    data = os.urandom(3_000_000)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        connection = connected(peer, DIGEST)
        sent = 0
        while sent < len(data):
            sent += os.sendfile(connection.fileno(), file.fileno(), sent, len(data) - sent)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(64, socket.MSG_WAITALL).decode() == hashlib.sha256(data).hexdigest()
    assert connection.recv(1) == b""


def timeouts(own, peer):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
    connection.connect((peer, MUTE))
    began = time.time()
    try:
        connection.recv(1)
        raise AssertionError("something came")
    except BlockingIOError:
        assert 0.15 < time.time() - began < 3
    connection.settimeout(0.1)
    try:
        connection.recv(1)
        raise AssertionError("something came")
    except TimeoutError:
        pass


def fills(own, peer):
    """A receiver that does not read holds the sender back."""
    connection = connected(peer, MUTE)
    connection.setblocking(False)
    sent = 0
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    while poll.poll(300):
        sent += connection.send(bytes(65536))
        assert sent < 1 << 28


def late(own, peer):
    """What both ends have closed is still read, however late."""
    connection = connected(peer, FULL)
    connection.shutdown(socket.SHUT_WR)
    read = 0
    while data := connection.recv(65536):
        read += len(data)
        if MUCH - read < 500_000 and read % 3 == 0:
            time.sleep(0.01)
        if read > MUCH - 200_000:
            time.sleep(2.5)
            break
    while data := connection.recv(65536):
        read += len(data)
    assert read == MUCH, read


def reset(own, peer):
    """The other end closes without reading: an error, not the end of a stream."""
    connection = connected(peer, ENDS)
    connection.sendall(b"not read" * 1000)
    try:
        assert connection.recv(1) != b"", "it looks as if all had been read"
    except ConnectionResetError:
        return
    raise AssertionError("something came")


def mapped(own, peer):
    connection = socket.socket(socket.AF_INET6)
    connection.connect((f"::ffff:{peer}", ECHO))
    assert connection.getpeername()[:2] == (f"::ffff:{peer}", ECHO), connection.getpeername()
    assert connection.getsockname()[0] == f"::ffff:{own}"
    greeting(connection)
    echoes(connection, b"mapped")


def bound(own, peer):
    connection = socket.socket()
    connection.bind((own, 4321))
    connection.connect((peer, ECHO))
    assert connection.getsockname() == (own, 4321)
    assert f"('{own}', 4321)" in greeting(connection)


def foreign(own, peer):
    """Nobody connects from an address that is not this node's: TCP refuses it, and so does link."""
    connection = socket.socket()
    connection.bind(("127.0.0.1", 0))
    try:
        connection.connect((peer, ECHO))
    except OSError:
        return
    raise AssertionError(greeting(connection))


def deaf(own, peer):
    """Who reads no more still writes."""
    for _ in range(12):
        connection = connected(peer)
        greeting(connection)
        connection.shutdown(socket.SHUT_RD)
        for _ in range(3):
            connection.sendall(b"it comes back and is dropped")
            time.sleep(0.02)


def messages(own, peer):
    connection = connected(peer)
    greeting(connection)
    connection.sendmsg([b"in ", b"pieces"])
    assert connection.recv(9, socket.MSG_PEEK | socket.MSG_WAITALL) == b"in pieces"
    parts = [bytearray(3), bytearray(6)]
    assert connection.recvmsg_into(parts)[0] == 9 and bytes(parts[1]) == b"pieces"
    connection.send(b"to")
    data, sender = connection.recvfrom(10)
    assert data == b"to" and sender is None or sender == ("", 0), (data, sender)


def addressed(own, peer):
    """TCP heeds no address on a socket that is connected."""
    connection = connected(peer)
    greeting(connection)
    connection.sendto(b"to", (peer, ECHO))
    connection.sendmsg([b"wards"], [], 0, (peer, ECHO))
    assert connection.recv(7, socket.MSG_WAITALL) == b"towards"


def loop(own, peer):
    async def one(number):
        reader, writer = await asyncio.open_connection(peer, ECHO)
        await reader.readline()
        data = bytes([number]) * 50_000
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()
        await writer.wait_closed()

    async def all():
        await asyncio.gather(*(one(number) for number in range(20)))

    asyncio.run(all())


def refused(own, peer):
    try:
        connected(peer, NOBODY)
        raise AssertionError("somebody listens")
    except ConnectionRefusedError:
        pass


def killed(own, peer):
    """A process that is killed closes its connection."""
    connection = connected(peer)
    child = int(subprocess.check_output(["sh", "-c", "sleep 20 >&- & echo $!"]))
    greeting(connection)
    echoes(connection, b"before")
    os.kill(child, signal.SIGKILL)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""


def signals(own, peer):
    """A handler ends a call that waits for descriptors, also one that lets others go on (SA_RESTART); and no call closes what is not the program's."""

    class Came(Exception):
        pass

    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Came

    connection = connected(peer)
    greeting(connection)
    signal.signal(signal.SIGALRM, handler)
    signal.siginterrupt(signal.SIGALRM, False)
    epoll = select.epoll()
    epoll.register(connection, select.EPOLLIN)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    for wait in (lambda: poll.poll(20_000), lambda: epoll.poll(20), lambda: select.select([connection], [], [], 20)):
        began = time.time()
        try:
            # A signal before the call waits is lost, here as with the kernel's own: it is repeated.
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
            wait()
            raise AssertionError("no signal came")
        except Came:
            assert time.time() - began < 10
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    kept = {0, 1, 2, connection.fileno(), epoll.fileno()}
    for fd in range(3, 256):
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                pass
    with tempfile.TemporaryDirectory() as folder:
        files = [open(f"{folder}/{number}", "wb") for number in range(20)]
        for number in range(50):
            echoes(connection, b"%d" % number)
            time.sleep(0.002)
        another = connected(peer)
        greeting(another)
        for number in range(50):
            echoes(another, b"%d" % number)
            time.sleep(0.002)
        assert [os.path.getsize(file.name) for file in files] == [0] * 20


CASES = [
    names, processes, options, fork, dup, run, passed, edge, sendfile, timeouts, fills, late, reset, mapped, bound, foreign, deaf, messages, addressed, loop,
    refused, killed, signals,
]

if sys.argv[1] == "serve":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    serve(sys.argv[2])
else:
    for case in CASES:
        if case.__name__ in sys.argv[4:]:
            continue
        try:
            case(*sys.argv[2:4])
        except BaseException as error:
            print(f"{case.__name__}: {error!r}", flush=True)
            raise
        print(f"{case.__name__}: ok", flush=True)

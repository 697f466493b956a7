"""What a user without rights tries with the broker of `link run`: `hostile.py WAY ...`. It prints what came of it."""

# The encoding is loaded before the rights are given up: python's files may be root's.
import ctypes, encodings.idna, json, os, re, signal, socket, struct, sys, tempfile, time


def ask(question, fds, hears=True):
    asks = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asks.settimeout(60)
    asks.connect(f"/run/evenkeel-link/{os.stat('/proc/self/ns/net').st_ino}/sockets")
    socket.send_fds(asks, [json.dumps(question).encode()], [fd.fileno() for fd in fds])
    if not hears:
        return asks
    return hear(asks)


def hear(asks):
    said, fds, _, _ = socket.recv_fds(asks, 65536, 4)
    return json.loads(said) if said else None, fds


def addresses(line):
    """Of a line of /proc/net/tcp: the port of the local end, both ends and the state."""
    words = line.split()
    return int(words[1].split(":")[1], 16), words[1], words[2], words[3]


def steal(at, port):
    """A socket with the addresses of a connection that waits in somebody's listener, but not that connection."""
    host = struct.pack("<I", struct.unpack("!I", socket.inet_aton(at))[0]).hex().upper()
    wanted, tried = f"{host}:{port:04X}", set()
    while not tried:
        with open("/proc/net/tcp") as table:
            for mine, _, peer, state in map(addresses, table.read().splitlines()[1:]):
                if peer != wanted or state != "01":
                    continue
                tried.add(mine)
                one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind((at, port))
                one.connect((at, mine))
                print("udp", ask("Accepted", [one]), flush=True)
        time.sleep(0.01)
    # Connections of one's own: to that listener, and accepted elsewhere.
    own = socket.create_connection((at, port))
    print("own", ask("Accepted", [own]), flush=True)
    listener = socket.create_server((at, 0))
    other = socket.create_connection(listener.getsockname())
    print("accepted", ask("Accepted", [listener.accept()[0]]), flush=True)
    # What is no fresh socket is not connected, and what does not listen is no listener.
    for name, way, fd in (
        ("connected", {"Connect": {"to": f"{at}:1", "is_patient": True}}, other),
        ("udp connects", {"Connect": {"to": f"{at}:1", "is_patient": True}}, socket.socket(type=socket.SOCK_DGRAM)),
        ("connection listens", "Listens", other),
    ):
        print(name, ask(way, [fd]), flush=True)


def lingering():
    """A socket whose close waits for an hour, and what has to stay open for that."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    full = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
    full.setblocking(False)
    try:
        while True:
            full.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    full.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    return full, (listener, other)


def linger(to):
    # A close of this process, where the broker's came first, is not to wait.
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    kept = []
    for question, count, hears in (("Figures", 1, True), ("Figures", 3, True), ("Take", 2, True), ("Ended", 1, False), ({}, 2, False)):
        all = [lingering() for _ in range(count)]
        kept += [rest for _, rest in all]
        asks = ask(question, [one for one, _ in all], hears=False)
        for one, _ in all:
            one.close()
        if not hears:
            asks.close()
        kept.append(asks)
        # Another user's question waits for none of it.
        print("answered", json.dumps(question), ask("Figures", [socket.socket()])[0], flush=True)
    # By the end of a connection over link.
    said, fds = ask({"Connect": {"to": to, "is_patient": True}}, [socket.socket()])
    end = socket.socket(fileno=fds[0])
    one, rest = lingering()
    try:
        socket.send_fds(end, [b"with a descriptor"], [one.fileno()])
        print("passed")
    except OSError as error:
        print("not passed", error.errno)
    one.close()
    print("answered", said, ask("Figures", [socket.socket()])[0], flush=True)
    os._exit(0)


def answerless():
    """A file of a FUSE file system whose server does not answer when it is closed. It takes root to mount it here; users have fusermount."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(0x20000) == 0 and libc.mount(None, b"/", None, 0x44000, None) == 0
    device = os.open("/dev/fuse", os.O_RDWR)
    folder = tempfile.mkdtemp()
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    assert libc.mount(b"fuse", folder.encode(), b"fuse", 0, options) == 0, ctypes.get_errno()
    INIT, LOOKUP, GETATTR, OPEN = 26, 1, 3, 14
    # This process serves: when it is killed the file system ends, and with it whatever waits for it.
    if os.fork() != 0:
        attributes = lambda inode, mode: struct.pack("QQQQQQIIIIIIIIII", inode, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
        while True:
            asked = os.read(device, 1 << 17)
            _, what, unique, inode = struct.unpack("IIQQ", asked[:24])
            said = {
                INIT: lambda: struct.pack("IIIIHHIIHHI", 7, 31, 65536, 0, 16, 12, 4096, 1, 0, 0, 0) + bytes(28),
                LOOKUP: lambda: struct.pack("QQQQII", 2, 0, 60, 60, 0, 0) + attributes(2, 0o100666),
                GETATTR: lambda: struct.pack("QII", 60, 0, 0) + attributes(inode, 0o40777 if inode == 1 else 0o100666),
                OPEN: lambda: struct.pack("QII", 1, 0, 0),
            }.get(what)
            if said:
                os.write(device, struct.pack("IiQ", 16 + len(said()), 0, unique) + said())
    os.close(device)
    return open(f"{folder}/file", "rb", buffering=0)


def wait(file):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    asks = [ask(question, [file] * count, hears=False) for question, count in (("Figures", 1), ("Take", 2))]
    print("asked", flush=True)
    # Its own close would wait, too.
    time.sleep(3600)


def figures():
    """What is told of a connection by its name, which anybody may take."""
    with open("/proc/net/unix") as table:
        names = re.findall(r"@(ek \S+ \S+ )\S+", table.read())
    for name in names:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.bind("\0" + name + "ffffff")
        print([ask(question, [one])[0] for question in ("Figures", "Ended", "IsOffered", "Delivered")], flush=True)


def crowd(to, most, user=65534, keeps=False):
    """As many connections as a user gets."""
    os.setresuid(user, user, user)
    ends = []
    while len(ends) < most:
        said, fds = ask({"Connect": {"to": to, "is_patient": True}}, [socket.socket()])
        if said != "End":
            break
        ends += fds
    print("has", len(ends), said, flush=True)
    if keeps:
        time.sleep(3600)


def full(to, count):
    """Connections whose other ends read nothing, each with all that goes into it."""
    ends = []
    for _ in range(count):
        said, fds = ask({"Connect": {"to": to, "is_patient": True}}, [socket.socket()])
        assert said == "End", said
        ends.append(socket.socket(fileno=fds[0]))
    went = time.monotonic()
    while time.monotonic() - went < 2:
        for end in ends:
            try:
                while end.send(bytes(1 << 16), socket.MSG_DONTWAIT):
                    went = time.monotonic()
            except BlockingIOError:
                pass
        time.sleep(0.01)
    print("full", flush=True)
    time.sleep(3600)


def offers(to):
    """Offers one connection to the program at its other end again and again."""
    said, fds = ask({"Connect": {"to": to, "is_patient": True}}, [socket.socket()])
    assert said == "End", said
    end = socket.socket(fileno=fds[0])
    print([ask({"Offer": {"port": 50000, "token": token}}, [end])[0] for token in range(20)], flush=True)


def untaken(to):
    """Takes a connection to carry it itself, and does not wait for the answer, while the broker is held up; then uses it as before."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    said, fds = ask({"Connect": {"to": to, "is_patient": True}}, [socket.socket()])
    assert said == "End", said
    end = socket.socket(fileno=fds[0])
    end.settimeout(60)
    print("connected", flush=True)
    signal.sigwait([signal.SIGUSR1])
    reads, _writes = os.pipe()
    with open(reads, "rb") as life:
        ask("Take", [life, end], hears=False).close()
    print("left", flush=True)
    # Once later questions are answered, the broker has seen that one.
    print([ask("Figures", [end])[0] for _ in range(2)], flush=True)
    end.sendall(b"secret")
    print(end.recv(100), flush=True)


def absent(count):
    """Wants to be connected to addresses that nobody has."""
    asked = [ask({"Connect": {"to": f"10.77.0.{10 + at}:7000", "is_patient": True}}, [socket.socket()], hears=False) for at in range(count)]
    print([hear(asks)[0] for asks in asked].count("Tcp"), flush=True)


def twin(to, port):
    """Wants to be connected from ports that connections have: of somebody else's, and of its own."""
    connect = {"Connect": {"to": to, "is_patient": True}}
    v6 = socket.socket(socket.AF_INET6)
    v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    v6.bind(("::", port))
    print("IPv6 alone", ask(connect, [v6])[0], flush=True)
    kept = []
    for name, connect in (("first", connect), ("again", connect), ("elsewhere", {"Connect": {"to": to.rsplit(":", 1)[0] + ":7001", "is_patient": True}})):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", 20000))
        said, fds = ask(connect, [one])
        print(name, said, flush=True)
        kept += [one, fds]


def beside(port):
    """Listens on a port that another program has for IPv4, by IPv6 alone, and on many others."""
    v6 = socket.socket(socket.AF_INET6)
    v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    v6.bind(("::", port))
    v6.listen()
    others = [socket.create_server(("127.0.0.1", 0)) for _ in range(500)]
    print("listens", len(others), flush=True)
    time.sleep(3600)


def pipe(to):
    """Carries a connection by itself, ends it, and keeps the pipe by which the broker would see its own end."""
    said, fds = ask({"Connect": {"to": to, "is_patient": True}}, [socket.socket()])
    end = socket.socket(fileno=fds[0])
    reads, writes = os.pipe()
    print(said, ask("Take", [open(reads, closefd=False), end])[0], flush=True)
    os.write(writes, b"x")
    end.close()
    print("kept", flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    way, *words = sys.argv[1:]
    words = [int(word) if word.isdigit() else word for word in words]
    if way == "wait":
        words = [answerless()]
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    if way != "crowd":
        os.setresuid(65534, 65534, 65534)
    globals()[way](*words)

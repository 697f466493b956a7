"""A program of another user that has ports, and tries to read and to forge what is another's.

Arguments: the broker's socket, the address of this node, that of the other one, the port of the victim. It says `ready` once it has ports, tries,
says `tried`, and at the end of its input whatever it read that is not its own.
"""
import json, mmap, os, select, socket, struct, sys, threading, time

claims, own, other, victim = sys.argv[1:5]
OWN, OTHER = (bytes.fromhex(mac.replace(":", "")) for mac in (own, other))
VICTIM, ALL, LINK = int(victim), 3, 0x88B5


def frame(sender, text, source=OWN, ethertype=LINK, kind=0x12, to=7, number=1):
    head = struct.pack("!BBHHHIIIIIHH", kind, 0, len(text), sender, to, number, 2, 3, 4, 5, 6, 0)
    return OTHER + source + struct.pack("!H", ethertype) + head + text


def tried(work):
    try:
        work()
    except OSError as error:
        print("refused:", error, file=sys.stderr)


talk = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
talk.connect(claims)
talk.send(b'"Ports"')
told, fds, _, _ = socket.recv_fds(talk, 4096, 8)
ports = json.loads(told)["Ports"]
first, index = ports["first"], ports["wire"]["index"]
sockets = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0, fileno=fd) for fd in fds[:2]]
print("ready", first, ports["last"], flush=True)

for s in sockets:
    s.setblocking(False)
    # Its own, the way that its library goes.
    s.send(frame(first, b"HONEST"))
    forged = [
        frame(VICTIM, b"FORGED: another's port"),
        frame(0, b"FORGED: the broker's", kind=0x17),
        frame(1, b"FORGED: a privileged port"),
        frame(first, b"FORGED: another node", source=OTHER),
        frame(first, b"FORGED: another protocol", ethertype=0x0800),
        frame(first, b"FORGED: a hello", kind=0x17),
        frame(first, b"FORGED: a probe of the node", kind=0x11, to=0, number=0),
        frame(first, b"FORGED: an answer of the node", kind=0x12, to=0, number=0),
        frame(first, b"FORGED: a kind that is none", kind=0x1F),
        frame(first, b"FORGED: another version", kind=0x20),
        frame(first, b"FORGED: a notice that is none", kind=0x00),
        frame(first, b"FORGED: in a VLAN")[:12] + b"\x81\x00\x00\x05" + frame(first, b"FORGED: in a VLAN")[12:],
    ]
    for bypass in (0, 1):
        tried(lambda: s.setsockopt(263, 20, bypass))
        for one in forged:
            tried(lambda: s.send(one))
            tried(lambda: s.sendto(one, (s.getsockname()[0], LINK)))
    # A sum that the kernel puts to the place of the port.
    tried(lambda: s.setsockopt(263, 15, 1))
    for fill in range(64):
        tried(lambda: s.send(struct.pack("=BBHHHH", 1, 0, 0, 0, 14, 4) + frame(first, b"MIXED" + bytes([fill, 0]))))
    # Segments.
    tried(lambda: s.send(struct.pack("=BBHHHH", 0, 1, 54, 100, 0, 0) + frame(first, b"FORGED: segments" * 50)))
    tried(lambda: s.setsockopt(263, 15, 0))
    # A filter of its own, or none.
    tried(lambda: s.setsockopt(socket.SOL_SOCKET, 27, 0))
    tried(lambda: s.setsockopt(socket.SOL_SOCKET, 44, 0))
    for at in (index, 2):
        tried(lambda: s.setsockopt(263, 1, struct.pack("iHH8s", at, 1, 0, b"")))
    tried(lambda: s.setsockopt(263, 23, 0))
    tried(lambda: s.bind((s.getsockname()[0], ALL)))

# The bytes of a ring change while they are sent.
ring = sockets[1]
tried(lambda: ring.setsockopt(263, 20, 1))
ring.setsockopt(263, 13, struct.pack("IIII", 4096, 1, 4096, 1))
place = mmap.mmap(ring.fileno(), 4096)
good, bad = (struct.pack("!H", port) for port in (first, VICTIM))
one = frame(first, b"MIXED" + b"\0" * 200)
place[32 : 32 + len(one)] = one
going = True


def flip():
    while going:
        place[50:52] = bad
        place[50:52] = good


flips = threading.Thread(target=flip)
flips.start()
for _ in range(2000):
    place[8:12] = struct.pack("I", len(one))
    place[0:8] = struct.pack("Q", 1)
    tried(lambda: ring.send(b""))
going = False
flips.join()
print("tried", flush=True)

sys.stdin.readline()
for s in sockets:
    while select.select([s], [], [], 0.1)[0]:
        try:
            print("read", s.recv(4096).hex(), flush=True)
        except OSError as error:
            print("refused:", error, file=sys.stderr)
            break
# Without its ports it is nobody.
talk.close()
time.sleep(0.5)
tried(lambda: sockets[0].send(frame(first, b"FORGED: after the ports went back")))
print("done", flush=True)

"""For `benches/detect`: two namespaces, a legitimate mix and real clients from one to the other, floods beside them, and the times at which
what is in the way does something about it, watched from outside of it."""

import array
import atexit
import ctypes
import fcntl
import json
import math
import os
import random
import shutil
import socket
import struct
import tempfile
import threading
import time

from .lab import Program, Trouble, keep_bpf_file_system, sh, wait_for
from .peers import EVENKEEL

NET, HOST, NEAR, FAR = "ekdet-net", "ekdet-host", "ekdet0", "ekdet1"
NEAR_MAC, FAR_MAC = "02:00:00:00:00:aa", "02:00:00:00:00:bb"
TARGET, GATEWAY, PORT = "198.19.0.1", "198.18.255.1", 80
FLOOD_CPU, OTHER_CPU = 0, 1
# The mix: kinds, their parts of its packets, and how nft tells them from one another, in this order.
KINDS = {"fragments": (0.02, "ip frag-off & 0x3fff != 0"), "DNS": (0.02, "udp sport 53"), "QUIC": (0.17, "ip protocol udp"),
         "ping": (0.02, "ip protocol icmp"), "TCP": (0.77, "ip protocol tcp")}
CLIENTS, SLOT, SLOTS = 200, 0.05, 80  # sources of the mix; seconds of a slot of equal rate, slots until it begins anew
MEAN_PPS, SWING_PPS = 12_000, 6_000
SIOCETHTOOL, GSTRINGS, GSTATS, SS_STATS = 0x8946, 0x1B, 0x1D, 1  # linux/sockios.h, linux/ethtool.h
SO_TIMESTAMPNS = 35  # asm-generic/socket.h
# tcpdump -dd "src net 10.0.0.0/8": frames of floods.
FLOODS_ONLY = [(0x28, 0, 0, 12), (0x15, 0, 4, 0x800), (0x20, 0, 0, 26), (0x54, 0, 0, 0xFF000000), (0x15, 0, 1, 0x0A000000), (0x06, 0, 0, 64), (0x06, 0, 0, 0)]


def ipv4(source, protocol, length, offset=0):
    """Ethernet and IPv4 headers; nobody looks at the checksum."""
    ethernet = bytes.fromhex((FAR_MAC + NEAR_MAC).replace(":", "")) + b"\x08\x00"
    return ethernet + struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 7, offset, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton(TARGET))


def mix_frame(draw):
    source = f"198.18.0.{1 + draw.randrange(CLIENTS)}"
    kind, = draw.choices(list(KINDS), [part for part, _ in KINDS.values()])
    port = draw.randrange(1024, 65536)
    if kind == "fragments":
        head = ipv4(source, 17, 1220, draw.choice((0x2000, 150))) + struct.pack("!HHHH", port, 4500, 2400, 0)
    elif kind == "DNS":
        head = ipv4(source, 17, 220) + struct.pack("!HHHH", 53, port, 200, 0)
    elif kind == "QUIC":
        head = ipv4(source, 17, 900) + struct.pack("!HHHH", port, 443, 880, 0)
    elif kind == "ping":
        head = ipv4(source, 1, 84) + b"\x08" + bytes(7)
    else:
        head = ipv4(source, 6, 500) + struct.pack("!HHIIHHHH", port, 443, 1, 1, 0x5010, 65535, 0, 0)
    return kind, head + bytes(14 + struct.unpack("!H", head[16:18])[0] - len(head))


def write_pcap(path, frames):
    """(seconds, frame) to a file with times in nanoseconds."""
    with open(path, "wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for at, frame in frames:
            file.write(struct.pack("=IIII", int(at), int(at % 1 * 1e9), len(frame), len(frame)) + frame)


def write_mix(path):
    """Its rate rises and falls once in 4 s; one slot of 50 ms in ten has thrice as much. The kinds of its frames, in their order."""
    draw, frames, kinds = random.Random(5), [], []
    for slot in range(SLOTS):
        pps = (MEAN_PPS - SWING_PPS * math.cos(2 * math.pi * slot / SLOTS)) * (3 if slot % 10 == 7 else 1)
        count = int(pps * SLOT)
        for i in range(count):
            kind, frame = mix_frame(draw)
            kinds.append(kind)
            frames.append((SLOT * (slot + i / count), frame))
    write_pcap(path, frames)
    return kinds


def write_fragments(path):
    frame = lambda i: ipv4(f"10.0.{i >> 8}.{i & 255}", 17, 482, 180) + bytes(462)  # noqa: E731 (one of 4,096)
    write_pcap(path, [(i * 1e-5, frame(i)) for i in range(4096)])


def within(namespace, work):
    """What `work` gives when a thread does it in a namespace: a socket belongs to where it was made."""
    found = []

    def there():
        with open(f"/run/netns/{namespace}") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0) == 0:
                found.append(work())

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    if not found:
        raise Trouble(f"nothing can be done in {namespace}")
    return found[0]


class Counters:
    """The driver's counters of an interface, in microseconds (ethtool -S)."""

    def __init__(self, namespace, device):
        self.socket, self.device = within(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)), device
        names = self._ask(struct.pack("III", GSTRINGS, SS_STATS, 0), 4096)
        count = struct.unpack_from("I", names, 8)[0]
        self.names = [names[12 + 32 * i:44 + 32 * i].split(b"\0")[0].decode() for i in range(count)]

    def _ask(self, request, room):
        data = array.array("B", request.ljust(room, b"\0"))
        fcntl.ioctl(self.socket, SIOCETHTOOL, struct.pack("16sP16x", self.device.encode(), data.buffer_info()[0]))
        return data.tobytes()

    def read(self):
        count = len(self.names)
        return dict(zip(self.names, struct.unpack_from(f"{count}Q", self._ask(struct.pack("II", GSTATS, count), 8 + 8 * count), 8)))


class AttackLab:
    """A network with clients and a flood, and a host. Everything is gone after close()."""

    def __init__(self):
        self.folder, self.programs = tempfile.mkdtemp(prefix="ekdet-", dir="/dev/shm"), []
        keep_bpf_file_system()
        atexit.register(self.close)
        self._clear()
        ends = ((NET, NEAR, GATEWAY, TARGET, FAR_MAC), (HOST, FAR, TARGET, GATEWAY, NEAR_MAC))
        for name, *_ in ends:
            sh("ip", "netns", "add", name)
            sh("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        sh("ip", "link", "add", NEAR, "netns", NET, "address", NEAR_MAC, "type", "veth", "peer", "name", FAR, "netns", HOST, "address", FAR_MAC)
        for name, device, address, other, mac in ends:
            sh("ip", "-n", name, "addr", "add", f"{address}/15", "dev", device)
            sh("ip", "-n", name, "link", "set", device, "up")
            sh("ip", "netns", "exec", name, "ethtool", "-K", device, "gro", "on", "tso", "off")
            sh("ip", "-n", name, "neigh", "replace", other, "lladdr", mac, "nud", "permanent", "dev", device)
        sh("ip", "-n", HOST, "route", "add", "default", "via", GATEWAY)  # answers to spoofed sources end there
        # Behind XDP the mix is counted by kind and ends, as do floods but for what comes to the open port.
        text = "table netdev ekdet {" + "".join(f" counter {kind} {{}}\n" for kind in KINDS)
        text += f'chain first {{ type filter hook ingress device "{FAR}" priority 0;\n'
        text += "".join(f"ip saddr 198.18.0.0/24 {test} counter name {kind} drop\n" for kind, (_, test) in KINDS.items())
        text += f"ip saddr 10.0.0.0/8 tcp dport {PORT} tcp flags & (syn | ack) == syn accept\nip saddr 10.0.0.0/8 drop\n}}\n}}\n"
        rules = self.path("host.nft")
        with open(rules, "w") as file:
            file.write(text)
        self.inside(HOST, "nft", "-f", rules)
        serve = f"import socket\ns = socket.create_server(('{TARGET}', {PORT}), backlog=4096)\nwhile True: s.accept()[0].close()"
        self.start("server", HOST, OTHER_CPU, "python3", "-c", serve)
        self.near, self.far = Counters(NET, NEAR), Counters(HOST, FAR)
        self.kinds = write_mix(self.path("mix.pcap"))
        write_fragments(self.path("fragments.pcap"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def inside(self, namespace, *argv, check=True):
        """With this machine's file systems: programs find what they pinned."""
        return sh("nsenter", f"--net=/run/netns/{namespace}", *argv, check=check)

    def start(self, name, namespace, cpu, *argv):
        folder = tempfile.mkdtemp(dir=self.folder)
        program = Program(name, ["nsenter", f"--net=/run/netns/{namespace}", "taskset", "-c", str(cpu), *argv], folder)
        self.programs.append(program)
        return program

    def generate(self, name, cpu, seconds, *argv):
        return self.start(name, NET, cpu, EVENKEEL, "gen", NEAR, *argv, "--duration", f"{seconds:.1f}s", "--json")

    def mix(self, seconds):
        return self.start("mix", NET, OTHER_CPU, EVENKEEL, "gen", NEAR, "--pcap", self.path("mix.pcap"), "--original", "--pacing", "sleep",
                          "--duration", f"{seconds:.1f}s", "--json")

    def mixed(self, count):
        """Of so many frames of the mix, how many are of each kind."""
        whole, rest = divmod(count, len(self.kinds))
        return {kind: whole * self.kinds.count(kind) + self.kinds[:rest].count(kind) for kind in KINDS}

    def passed(self):
        """What came out behind XDP, by kind of the mix."""
        listed = json.loads(self.inside(HOST, "nft", "-j", "list", "counters"))["nftables"]
        return {entry["counter"]["name"]: entry["counter"]["packets"] for entry in listed if "counter" in entry}

    def flood_socket(self):
        """Receives frames of floods that pass XDP, with the kernel's times."""
        def make():
            found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            program = array.array("B", b"".join(struct.pack("HBBI", *line) for line in FLOODS_ONLY))
            found.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", len(FLOODS_ONLY), program.buffer_info()[0]))  # SO_ATTACH_FILTER
            found.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            found.bind((FAR, 3))  # ETH_P_ALL: before nftables
            return found

        return within(HOST, make)

    def _clear(self):
        for name in (NET, HOST):
            sh("ip", "netns", "del", name, check=False)

    def close(self):
        while self.programs:
            self.programs.pop().close()
        self._clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def first_of(sock, seconds):
    """When the first frame came, by the clock on the wall; none came: None."""
    sock.settimeout(seconds)
    try:
        _, extra, _, _ = sock.recvmsg(64, 64)
    except socket.timeout:
        return None
    finally:
        sock.close()
    whole, nano = struct.unpack("ll", next(data for _, kind, data in extra if kind == SO_TIMESTAMPNS))
    return whole + nano / 1e9


def sent(generator, patience=12.0):
    """Frames that a generator has sent, and those of them that found no place in the queue of the host's interface."""
    if not wait_for(lambda: not generator.running(), patience):
        raise Trouble(f"{generator.name} does not end")
    if generator.process.returncode:
        raise Trouble(f"{generator.name}: {generator.text()[-800:]}")
    found = json.loads(generator.stdout())
    return found["submitted" if "submitted" in found else "handed"], found["device_dropped"] or 0


class Clients(threading.Thread):
    """Connects to the open port every 10 ms, one after the other: `done` has (when, seconds or why not)."""

    def __init__(self, seconds):
        super().__init__(daemon=True)
        self.until, self.done = time.time() + seconds, []

    def run(self):
        with open(f"/run/netns/{NET}") as file:
            ctypes.CDLL(None).setns(file.fileno(), 0)
        while time.time() < self.until:
            at = time.time()
            try:
                socket.create_connection((TARGET, PORT), timeout=0.9).close()
                self.done.append((at, time.time() - at))
            except OSError as error:
                self.done.append((at, str(error)))
            time.sleep(max(0.0, at + 0.01 - time.time()))

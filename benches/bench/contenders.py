"""The contenders: how each generator and each reader is started, how it counts, and what it needs."""

import os
import re
import struct
from dataclasses import dataclass, field
from typing import Callable

from .lab import READER_CPU, RECEIVER, SENDER, SENDER_CPU
from .peers import EVENKEEL, YARDSTICKS, json_field, number_before, xdp_tool

# Frames: 60 bytes (without FCS), SYNs from 198.18.0.0/16 to 198.19.0.1:80 with valid checksums, to nobody's MAC address.
NOBODY = "02:00:00:00:00:02"

# Every ring of a reader gets as much memory as `evenkeel capture` takes by itself, 64 blocks of 1 MiB: with less, or more, a part of a
# difference under overload would be the buffer's.
BUFFER_MIB = 64
RING_FRAME_BYTES = 144  # what a 60-byte frame takes in a TPACKET_V3 block: header, address, alignment


@dataclass
class Generator:
    """A program that sends 60-byte frames out of `ekb0` as fast as it can, from one core."""

    name: str
    argv: Callable  # (lab, seconds) -> command
    needs: str  # the program, by name or path
    note: str = ""
    receive: str = "drop"  # how the frames end; see Lab.arrange


@dataclass
class Reader:
    """A program that takes frames from `ekb1` until SIGINT, and says then how many."""

    name: str
    argv: Callable  # (lab, seconds) -> command
    count: Callable  # (Program) -> frames
    needs: str
    ready: str = "packet"  # what shows that it listens: an AF_PACKET socket, an XDP program, or either
    warm: float = 0.3  # seconds from there to being ready
    note: str = ""
    files: list = field(default_factory=list)
    live: bool = False  # started when the traffic already flows, because it chooses by it
    chosen: Callable = None  # (Program) -> match of what it has chosen, or None; for a live one
    rate: Callable = None  # (Program) -> packets/s; for a live one

    def extra(self):
        """Removes what it wrote, so that the RAM disk does not fill, and says how much that was."""
        size = 0
        for path in self.files:
            if os.path.exists(path):
                size += os.path.getsize(path)
                os.remove(path)
        return {"file_bytes": size} if self.files else {}


def _checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)


def write_pcap(path, frames=1000):
    """A file for tcpreplay: 60-byte SYNs of as many flows."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in range(frames):
            ends = struct.pack("!I", 0xC6120001 + 7 * number) + bytes([198, 19, 0, 1])
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, number, 0x4000, 64, 6, 0) + ends
            ip = ip[:10] + _checksum(ip) + ip[12:]
            tcp = struct.pack("!HHIIBBHHH", 1024 + number, 80, 7919 * number, 0, 0x50, 2, 65535, 0, 0)
            tcp = tcp[:16] + _checksum(ends + struct.pack("!HH", 6, 20) + tcp) + tcp[18:]
            frame = (bytes.fromhex(NOBODY.replace(":", "")) + bytes.fromhex("0200000000010800") + ip + tcp).ljust(60, b"\0")
            file.write(struct.pack("<IIII", 0, 0, 60, 60) + frame)


# The last six bytes are TCP payload, not padding: trafgen's csumtcp() would count padding in.
TRAFGEN = """{{
  0x02,0,0,0,0,2, 0x02,0,0,0,0,1, c16(0x0800),
  0x45,0, c16(46), {ident}, c16(0x4000), 64, 6, csumip(14,33), 198,18,{source}, 198,19,0,1,
  {port}, c16(80), {sequence}, c32(0), 0x50, 0x02, c16(65535), csumtcp(14,34), c16(0), fill(0,6)
}}
"""
TRAFGEN_VARIED = TRAFGEN.format(ident="drnd(2)", source="drnd(2)", port="drnd(2)", sequence="drnd(4)")
TRAFGEN_FIXED = TRAFGEN.format(ident="c16(0)", source="0,1", port="c16(1024)", sequence="c32(1)")


def _trafgen(text, name):
    def argv(lab, _seconds):
        path = os.path.join(lab.scratch, name)
        with open(path, "w") as file:
            file.write(text)
        return ["trafgen", "--dev", SENDER, "--conf", path, "--cpus", "1", "--notouch-irq", "--no-cpu-stats"]

    return argv


def _tcpreplay(lab, _seconds):
    path = os.path.join(lab.scratch, "syn.pcap")
    write_pcap(path)
    return ["tcpreplay", "-q", "-K", "-t", "--loop=0", "-i", SENDER, path]


def yardstick(name):
    return os.path.join(YARDSTICKS, name)


EVENKEEL_GEN = Generator(
    "evenkeel gen",
    lambda lab, seconds: [
        EVENKEEL, "gen", SENDER, "--syn-flood", "--rate", "max", "--duration", f"{seconds:.1f}s", "--cpus", str(SENDER_CPU)],
    EVENKEEL, "addresses and ports varied, checksums right")
LIVE_FRAMES = Generator(
    "live_frames",
    lambda lab, seconds: [yardstick("live_frames"), SENDER, str(int(seconds + 1)), str(SENDER_CPU)],
    yardstick("live_frames"), "bare C, one fixed frame")
XDP_TRAFFICGEN = Generator(
    "xdp-trafficgen",
    lambda lab, seconds: [*xdp_tool("xdp-trafficgen"), "udp", "-m", NOBODY, "-d", "1000", "-t", "1", SENDER],
    xdp_tool("xdp-trafficgen")[-1], "UDP, destination port varied")
# What sends socket buffers meets both kinds of peer: XDP on a veth makes it copy each frame first.
COPIED = "each frame copied for the peer's XDP program"
UNCOPIED = "the peer has no XDP program, its stack drops the frames"
GENERATORS = [
    EVENKEEL_GEN,
    LIVE_FRAMES,
    XDP_TRAFFICGEN,
    Generator("trafgen, fixed frame", _trafgen(TRAFGEN_FIXED, "fixed.cfg"), "trafgen", f"nothing varied; {COPIED}"),
    Generator("trafgen, varied", _trafgen(TRAFGEN_VARIED, "varied.cfg"), "trafgen", f"addresses and ports random, checksums right; {COPIED}"),
    Generator("tcpreplay", _tcpreplay, "tcpreplay", f"-K -t, 1000 flows from memory; {COPIED}"),
    Generator("trafgen, fixed frame, no XDP", _trafgen(TRAFGEN_FIXED, "fixed.cfg"), "trafgen", f"nothing varied; {UNCOPIED}", "plain"),
    Generator("tcpreplay, no XDP", _tcpreplay, "tcpreplay", f"-K -t, 1000 flows from memory; {UNCOPIED}", "plain"),
]


def evenkeel(name, *flags, **how):
    """A reader that is the product itself."""
    how = {"warm": 0.4, **how}
    return Reader(
        name, lambda lab, seconds: [EVENKEEL, "capture", RECEIVER, "--cpus", str(READER_CPU), "--quiet", "--json", *flags],
        json_field("packets"), EVENKEEL, **how)


TCPDUMP = Reader(
    "tcpdump", lambda lab, seconds: ["tcpdump", "-n", "-B", str(1024 * BUFFER_MIB), "-i", RECEIVER, "-w", "/dev/null"],
    number_before(r"(\d+) packets? captured"), "tcpdump", note="-w /dev/null")
TPACKET_RX = Reader(
    "tpacket_rx", lambda lab, seconds: [yardstick("tpacket_rx"), "-b", "1024", "-n", str(BUFFER_MIB), "-u", "100", RECEIVER],
    json_field("received"), yardstick("tpacket_rx"), note="counts only; bare TPACKET_V3 loop in C, looks every 100 us")
NETSNIFF = Reader(
    "netsniff-ng",
    lambda lab, seconds: ["netsniff-ng", "-i", RECEIVER, "-s", "-A", "-Q", "-b", str(READER_CPU), "-S", f"{BUFFER_MIB}MiB"],
    number_before(r"(\d+)\s+packets passed filter"), "netsniff-ng", warm=0.6, note="counts only: --silent")
DUMPCAP = Reader(
    "dumpcap", lambda lab, seconds: ["dumpcap", "-q", "-B", str(BUFFER_MIB), "-i", RECEIVER, "-w", "/dev/null"],
    number_before(r"Packets captured: (\d+)"), "dumpcap", warm=0.8, note="-w /dev/null")
XDPDUMP = Reader(
    "xdpdump",
    lambda lab, seconds: [*xdp_tool("xdpdump"), "-i", RECEIVER, "--load-xdp-program", "-w", "/dev/null"],
    number_before(r"(\d+) packets? captured"), xdp_tool("xdpdump")[-1], "xdp", 1.0, "-w /dev/null, frames pass on")
XSK_RX = Reader(
    "xsk_rx", lambda lab, seconds: [yardstick("xsk_rx"), RECEIVER, "0", str(READER_CPU), "8192"],
    number_before(r"(\d+) packets, \d+ lost"), yardstick("xsk_rx"), "xdp", 0.5, "counts only; bare AF_XDP loop in C on libxdp")
XDP_BENCH = Reader(
    "xdp-bench xsk-drop", lambda lab, seconds: [*xdp_tool("xdp-bench"), "xsk-drop", RECEIVER],
    number_before(r"RX\s+(\d+) pkts"), xdp_tool("xdp-bench")[-1], "xdp", 0.8, "counts only; AF_XDP")

NOTHING = Reader("nothing capturing", lambda lab, seconds: [], lambda program: 0, "true")

# By itself --count-only keeps one byte of each frame; whole frames are what the peers read.
WHOLE = ["--count-only", "--snaplen", "262144"]
FORMAT = ["-w", "/dev/null"]  # pcapng, as tcpdump, dumpcap and xdpdump do it
XDP_READY = {"ready": "xdp", "warm": 0.6}

EVENKEEL_RING = evenkeel("evenkeel ring", "--backend", "ring", *WHOLE, note="counts only, whole frames")
EVENKEEL_RING_NULL = evenkeel("evenkeel ring -w /dev/null", "--backend", "ring", *FORMAT, note="-w /dev/null")
EVENKEEL_RING_COUNT = evenkeel("evenkeel ring --count-only", "--backend", "ring", "--count-only", note="counts only, no bytes asked for")
EVENKEEL_XDP = evenkeel("evenkeel xdp", "--backend", "xdp", *WHOLE, **XDP_READY, note="counts only, whole frames")
EVENKEEL_TAP = evenkeel("evenkeel tap", "--backend", "tap", *WHOLE, **XDP_READY, note="counts only, whole frames, which pass on")
EVENKEEL_TAP_NULL = evenkeel("evenkeel tap -w /dev/null", "--backend", "tap", *FORMAT, **XDP_READY, note="-w /dev/null, frames pass on")
EVENKEEL_CONSUME = evenkeel(
    "evenkeel tap --consume", "--backend", "tap", "--consume", *WHOLE, **XDP_READY, note="counts only, whole frames, which end in XDP")
EVENKEEL_CONSUME_NULL = evenkeel(
    "evenkeel tap --consume -w /dev/null", "--backend", "tap", "--consume", *FORMAT, **XDP_READY, note="-w /dev/null, frames end in XDP")
EVENKEEL_PACKET = evenkeel(
    "evenkeel packet", "--backend", "packet", "--buffer", f"{BUFFER_MIB}M", *WHOLE, note="counts only, whole frames")
AUTO = {
    "live": True, "rate": json_field("packets_per_second", number=float),
    "chosen": lambda program: re.search(r"^chosen: (.*)$", program.text(), re.M), "note": "counts only, whole frames; tries the backends under this load",
}
EVENKEEL_AUTO = evenkeel("evenkeel auto --try-xdp", "--backend", "auto", "--try-xdp", *WHOLE, **AUTO)
EVENKEEL_AUTO_CONSUME = evenkeel("evenkeel auto --consume", "--backend", "auto", "--consume", *WHOLE, **AUTO)


def writers(folder):
    """Readers that keep whole frames in a file on a RAM disk."""
    file = os.path.join(folder, "capture")
    kept = {"note": "pcapng", "files": [file]}
    return [
        evenkeel("evenkeel ring", "--backend", "ring", "-w", file, **kept),
        evenkeel("evenkeel tap", "--backend", "tap", "-w", file, **XDP_READY, **kept),
        evenkeel("evenkeel tap --consume", "--backend", "tap", "--consume", "-w", file, **XDP_READY, **kept),
        Reader(
            "tcpdump", lambda lab, seconds: ["tcpdump", "-n", "-B", str(1024 * BUFFER_MIB), "-i", RECEIVER, "-w", file],
            number_before(r"(\d+) packets? captured"), "tcpdump", note="pcap (it has no pcapng)", files=[file]),
        Reader(
            "dumpcap", lambda lab, seconds: ["dumpcap", "-q", "-B", str(BUFFER_MIB), "-i", RECEIVER, "-w", file],
            number_before(r"Packets captured: (\d+)"), "dumpcap", warm=0.8, **kept),
    ]

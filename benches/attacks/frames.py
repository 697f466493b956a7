"""Frames of a flood, made from a seed: Ethernet, IPv4 or IPv6, TCP, UDP or ICMP, their checksums right."""

import random, socket, struct

FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32}
TCP, UDP, ICMP, ICMP6, OPTIONS = 6, 17, 1, 58, 60


def total(data):
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    sum_ = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while sum_ >> 16:
        sum_ = (sum_ & 0xFFFF) + (sum_ >> 16)
    return ~sum_ & 0xFFFF


def summed(data, at, pseudo=b""):
    return data[:at] + struct.pack("!H", total(pseudo + data) or 0xFFFF) + data[at + 2 :]


def transport(kind, dice, source, target, pseudo):
    """The packet behind the IP header: kind has protocol, flags, source-port, port, payload."""
    payload = bytes(kind.get("payload", 0))
    port = lambda name, usual: dice.randrange(1024, 65536) if kind.get(name, usual) == "random" else kind.get(name, usual)
    protocol = kind["protocol"]
    if isinstance(protocol, int):
        return protocol, payload
    if protocol == "tcp":
        flags = sum(FLAGS[name] for name in kind["flags"])
        head = struct.pack("!HHIIBBHHH", port("source-port", "random"), port("port", 80), dice.getrandbits(32), dice.getrandbits(32), 5 << 4, flags, 65535, 0, 0)
        return TCP, summed(head + payload, 16, pseudo(TCP, 20 + len(payload)))
    if protocol == "udp":
        head = struct.pack("!HHHH", port("source-port", "random"), port("port", "random"), 8 + len(payload), 0)
        return UDP, summed(head + payload, 6, pseudo(UDP, 8 + len(payload)))
    six = kind.get("family", 4) == 6
    head = struct.pack("!BBHHH", 128 if six else 8, 0, 0, dice.getrandbits(16), dice.getrandbits(16))
    number = ICMP6 if six else ICMP
    return number, summed(head + payload, 2, pseudo(ICMP6, 8 + len(payload)) if six else b"")


def source_of(kind, dice):
    """An address that nobody has here: of 100.64.0.0/10 and its like, any of 24.0.0.0 to 95.255.255.255."""
    if kind.get("family", 4) == 6:
        return bytes([0x20, 1, 0, 3]) + dice.getrandbits(96).to_bytes(12, "big")
    return bytes([dice.randrange(24, 96)]) + dice.getrandbits(24).to_bytes(3, "big")


def frame(kind, dice, source, macs, target):
    """One frame of a kind."""
    six = kind.get("family", 4) == 6
    if six:
        to = socket.inet_pton(socket.AF_INET6, target[1])
        pseudo = lambda number, length: source + to + struct.pack("!II", length, number)
    else:
        to = socket.inet_aton(target[0])
        pseudo = lambda number, length: source + to + struct.pack("!BBH", 0, number, length)
    number, rest = transport(kind, dice, source, to, pseudo)
    if six:
        if kind.get("options"):
            rest, number = bytes([number, 0, 1, 4, 0, 0, 0, 0]) + rest, OPTIONS
        packet = struct.pack("!IHBB", 6 << 28, len(rest), number, 64) + source + to + rest
    else:
        # A later fragment: an offset, and nothing that tells a port.
        place = dice.randrange(1, 100) if kind.get("fragment") else 0
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), dice.getrandbits(16), place, 64, number, 0) + source + to
        packet = summed(head, 10) + rest
    ethernet = macs[1] + macs[0]
    for tag in kind.get("vlan", []):
        ethernet += struct.pack("!HH", 0x8100, tag)
    return (ethernet + struct.pack("!H", 0x86DD if six else 0x0800) + packet).ljust(60, b"\0")


def write(path, kind, seed, macs, target):
    """A capture file (pcap) of so many `frames` as the kind has, one of each source without a number; more are of the same sources, with other ports."""
    dice, sources = random.Random(seed), []
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in range(kind.get("frames", kind["sources"])):
            if number < kind["sources"]:
                sources.append(source_of(kind, dice))
            one = frame(kind, dice, sources[number % kind["sources"]], macs, target)
            out.write(struct.pack("<IIII", 0, number, len(one), len(one)) + one)

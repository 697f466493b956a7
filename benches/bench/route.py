"""Tables `route`, `route-many`, `route-full`: what forwards frames on one core, by the kernel's own routes. The kernel stands beside evenkeel's fast path, xdp-forward
of xdp-tools and a program that only redirects. All is measured by what arrived behind the router."""

import os
import random

from .contenders import Generator
from .gateways import FAR, bare_redirect, crossed, gateway
from .lab import READER_CPU, RECEIVER, RECEIVER_MAC, SENDER, SENDER_CPU, sh
from .peers import EVENKEEL, xdp_tool
from .shield import Filter, _inside, rates_table, start_inside

NETWORK, SOURCE = "198.19.0.0/16", "198.18.0.9/32"
NEAR, BESIDE = "198.18.0.1/16", "192.0.2.1/24"
NEXT_HOPS = 16
# A full table: prefixes of the lengths that are common in the Internet's, all in these.
FULL, FULL_PREFIXES, FULL_PREFIXES_V6 = "96.0.0.0/3", 1_000_000, 200_000
LENGTHS = (16, 18, 19, 20, 20, 21, 22, 22, 22, 23, 23, *(24,) * 16)


def flood(destinations, flows):
    """UDP of 60 bytes, one source, so many destinations in turn."""
    def argv(lab, seconds):
        return [EVENKEEL, "gen", SENDER, "--udp", "--backend", "xdp-live", "--src", SOURCE, "--src-port", "5000", "--dst", destinations, "--dst-port", "9", "--flows", str(flows),
                "--dst-mac", RECEIVER_MAC, "--allow-destination", destinations, "--rate", "max", "--duration", f"{seconds:.1f}s", "--cpus", str(SENDER_CPU)]

    return Generator("evenkeel gen", argv, EVENKEEL, f"UDP to {flows:,} destinations in turn")


# -- the router

def router(lab):
    """Addresses, neighbours that stay, and a route to where the flood goes; nothing is in the way."""
    gateway(lab)
    rx = lab.names[1]
    sh("ip", "-n", rx, "addr", "replace", NEAR, "dev", RECEIVER)
    sh("ip", "-n", rx, "addr", "replace", BESIDE, "dev", FAR)
    for number in range(NEXT_HOPS):
        sh("ip", "-n", rx, "neigh", "replace", f"192.0.2.{2 + number}", "lladdr", f"02:00:00:00:01:{number:02x}", "nud", "permanent", "dev", FAR)
    for setting in ("ip_forward=1", "conf.all.rp_filter=0", f"conf.{RECEIVER}.rp_filter=0", f"conf.{FAR}.rp_filter=0", "conf.all.send_redirects=0"):
        _inside(lab, "sysctl", "-qw", f"net.ipv4.{setting}")
    sh("ip", "-n", rx, "route", "replace", NETWORK, "via", "192.0.2.2", "dev", FAR)


def full_table(lab):
    """A router with a full table; the routes are put in once and stay."""
    router(lab)
    if getattr(lab, "full_table", False):
        return
    v4 = [f"route replace {prefix} via 192.0.2.{2 + number % NEXT_HOPS} dev {FAR}" for number, prefix in enumerate(_prefixes_v4(FULL_PREFIXES))]
    v6 = [f"route replace 2001:2:{number >> 16:x}:{number & 0xffff:x}::/64 dev {FAR}" for number in range(FULL_PREFIXES_V6)]
    # Where no other prefix is, this one goes.
    v4.append(f"route replace {FULL} via 192.0.2.2 dev {FAR}")
    _inside(lab, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", f"net.ipv6.conf.{FAR}.disable_ipv6=0")
    for version, routes in (("-4", v4), ("-6", v6)):
        path = os.path.join(lab.scratch, f"routes{version}")
        with open(path, "w") as file:
            file.write("\n".join(routes) + "\n")
        sh("ip", version, "-n", lab.names[1], "-batch", path)
    lab.full_table = True


def _prefixes_v4(count):
    draw, found = random.Random(count), set()
    while len(found) < count:
        bits = draw.choice(LENGTHS)
        found.add((0x60000000 | draw.getrandbits(bits - 3) << (32 - bits), bits))
    return [f"{a >> 24}.{a >> 16 & 255}.{a >> 8 & 255}.{a & 255}/{bits}" for a, bits in sorted(found)]


# -- what forwards

def fast_path(build, *more):
    def place(lab):
        build(lab)
        return start_inside(lab, "evenkeel route", [EVENKEEL, "route", "run", RECEIVER, FAR, "--trial", "0", *more], READER_CPU, "XDP)")

    return place


def xdp_forward(build, mode):
    def place(lab):
        build(lab)
        _inside(lab, *xdp_tool("xdp-forward"), "load", "-f", "fib", "-F", mode, "-m", "native", RECEIVER, FAR)

    return place


def xdp_forward_away(lab):
    _inside(lab, *xdp_tool("xdp-forward"), "unload", RECEIVER, FAR, check=False)


BARE, KERNEL, STANDARD, ROUTED = "bare XDP redirect", "kernel", "evenkeel route, standard", "evenkeel route, routed"
FORWARD, DIRECT = "xdp-forward, fib-full", "xdp-forward, fib-direct"


def _contenders(build, bare=True):
    tool = xdp_tool("xdp-forward")[-1]
    return [
        *([Filter(BARE, "bpf_redirect and nothing else", bare_redirect(build))] if bare else []),
        Filter(KERNEL, "no program", build, in_xdp=False),
        Filter(STANDARD, "the program lets all go up", fast_path(build, "--mode", "standard"), in_xdp=False),
        Filter(ROUTED, "next hops asked of the kernel once, then remembered", fast_path(build)),
        Filter(FORWARD, "policy rules honoured", xdp_forward(build, "full"), xdp_forward_away, needs=tool),
        Filter(DIRECT, "the main table alone", xdp_forward(build, "direct"), xdp_forward_away, needs=tool),
    ]


def _how(what):
    return f"in at one veth, out at another and dropped behind it; generator and router share core {SENDER_CPU}; {what}; frames that arrived behind"


def one(lab, _generator, options, say):
    """Table `route`: one destination."""
    wanted = [(ROUTED, FORWARD, 1.4), (ROUTED, BARE, 0.9), (STANDARD, KERNEL, 0.97), (ROUTED, KERNEL, None)]
    return rates_table(lab, "route", _how("one destination"), _contenders(router), flood("198.19.0.5/32", 1), crossed, wanted, options, say)


def many(lab, _generator, options, say):
    """Table `route-many`: 10,000 destinations by one route."""
    wanted = [(ROUTED, FORWARD, 1.4), (ROUTED, BARE, 0.9), (ROUTED, KERNEL, None)]
    return rates_table(lab, "route-many", _how("10,000 destinations in turn"), _contenders(router), flood(NETWORK, 10_000), crossed, wanted, options, say)


def full(lab, _generator, options, say):
    """Table `route-full`: destinations drawn at random in a full table."""
    wanted = [(ROUTED, FORWARD, 1.0), (ROUTED, KERNEL, None)]
    how = _how(f"{FULL_PREFIXES:,} IPv4 and {FULL_PREFIXES_V6:,} IPv6 routes; 1,000,000 destinations drawn at random in them")
    return rates_table(lab, "route-full", how, _contenders(full_table), flood(FULL, 1_000_000), crossed, wanted, options, say)

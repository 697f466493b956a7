"""Where the peers are, which versions they have, and what each prints at the end."""

import json
import os
import re
import subprocess

from .lab import Trouble

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPOSITORY = os.path.dirname(HERE)
YARDSTICKS = os.path.join(HERE, "yardsticks")
FETCHED = os.path.join(REPOSITORY, "target", "bench-peers")
# Absolute, since programs run in folders of their own.
EVENKEEL = os.path.abspath(os.environ.get("EVENKEEL") or os.path.join(
    os.environ.get("CARGO_TARGET_DIR") or os.path.join(REPOSITORY, "target"), "release", "evenkeel"))


def xdp_tool(name):
    """The command for a program of xdp-tools: the unpacked newer one, with its own libraries, before the installed one."""
    libraries = os.path.join(FETCHED, "root/usr/lib/x86_64-linux-gnu")
    fetched = os.path.join(FETCHED, "root/usr/sbin", name)
    if os.path.exists(fetched):
        loader = os.path.join(libraries, "ld-linux-x86-64.so.2")
        return ["env", f"LIBXDP_OBJECT_PATH={libraries}/bpf", loader, "--library-path", libraries, fetched]
    return [name]


def versions():
    """The versions of all peers, as they say themselves."""
    found = {}
    asks = {
        "tcpdump": (["tcpdump", "--version"], r"tcpdump version (\S+)"),
        "libpcap": (["tcpdump", "--version"], r"libpcap version (\S+)"),
        "dumpcap": (["dumpcap", "--version"], r"Dumpcap \(Wireshark\) (\S+)"),
        "netsniff-ng": (["netsniff-ng", "--version"], r"netsniff-ng (\S+)"),
        "trafgen": (["trafgen", "--version"], r"trafgen (\S+)"),
        "iperf3": (["iperf3", "--version"], r"iperf (\S+)"),
        "tcpreplay": (["tcpreplay", "--version"], r"version: (\S+)"),
        "xdp-tools": ([*xdp_tool("xdpdump"), "--version"], r"version (\S+)"),
        "libxdp (yardstick)": (["dpkg-query", "-W", "libxdp-dev"], r"(\d\S+)"),
        "perf": (["perf", "--version"], r"version (\S+)"),
        "bpftrace": (["bpftrace", "--version"], r"bpftrace v(\S+)"),
        "Suricata": (["suricata", "-V"], r"version (\S+)"),
        "evenkeel": ([EVENKEEL, "--version"], r"evenkeel (\S+)"),
        "gcc": (["gcc", "--version"], r"(\d+\.\d+\.\d+)"),
    }
    for name, (argv, pattern) in asks.items():
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
            match = re.search(pattern, done.stdout + done.stderr)
            found[name] = match[1] if match else "unknown"
        except (OSError, subprocess.TimeoutExpired):
            found[name] = "absent"
    return found


def number_before(pattern):
    """A counter: the last number that the pattern finds in all that the program printed."""

    def count(program):
        found = re.findall(pattern, program.text())
        if not found:
            raise Trouble(f"{program.name} printed no count:\n{program.text()[-1000:]}")
        return int(found[-1])

    return count


def json_field(*path, number=int):
    """A counter: one field of the JSON document that the program printed on standard output."""

    def count(program):
        text = program.stdout()
        if "{" not in text:
            raise Trouble(f"{program.name} printed no JSON:\n{program.text()[-1000:]}")
        value, _ = json.JSONDecoder().raw_decode(text[text.index("{"):])
        for key in path:
            value = value[key]
        return number(value)

    return count

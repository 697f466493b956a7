"""Tables `drop`, `prefixes`, `strays`, `unasked`, `pass`, `cookies`: what `evenkeel shield` does per second on one core, beside what else could do it.

The flood is the same for all: SYNs of 60 bytes, the source of each drawn anew. Set-ups differ in what stands at the receiving end, and each is
measured by the interface's own counters: a frame counts only when what was to become of it did become of it."""

import os
import random
import shutil
import tempfile
import time
import zlib
from dataclasses import dataclass
from typing import Callable

from .contenders import Generator
from .cost import SINK, _build as build_box, Box
from .lab import READER_CPU, RECEIVER, RECEIVER_MAC, SENDER, SENDER_CPU, Program, Trouble, cpu_times, sh, usage, wait_for
from .peers import EVENKEEL, xdp_tool
from .trial import interleaved, judged, median_of, ratio, undisturbed

VICTIM, PORT = "198.19.0.1", 80
RULES, PREFIXES = 25, 100_000
WARM, SETTLE = 0.4, 0.3  # seconds
START_TIMEOUT = 30.0  # seconds for a filter to be in place


@dataclass
class Filter:
    """What stands at the receiving end. `place` puts it there and may give a program that runs meanwhile; `remove` takes it away."""

    name: str
    note: str
    place: Callable  # (lab) -> Program or None
    remove: Callable = lambda lab: None
    receive: str = "stack"  # how the lab is arranged before
    needs: str = EVENKEEL
    in_xdp: bool = True  # nothing may reach the stack


def _inside(lab, *argv, check=True):
    """A command in the receiver's namespace, with this machine's file systems: programs find what they pinned."""
    return sh("nsenter", f"--net=/run/netns/{lab.names[1]}", *argv, check=check)


def start_inside(lab, name, argv, cpu, is_up):
    """A program likewise, pinned to one core, once it is up: by a word that it prints, or by a call."""
    folder = tempfile.mkdtemp(prefix="shield-", dir=lab.scratch)
    program = Program(name, ["nsenter", f"--net=/run/netns/{lab.names[1]}", "taskset", "-c", str(cpu), *argv], folder)
    lab.programs.append(program)
    shows = is_up if callable(is_up) else lambda: is_up in program.text()
    if not wait_for(lambda: shows() or not program.running(), START_TIMEOUT, 0.05) or not program.running():
        raise Trouble(f"{name} did not start:\n{program.text()[-1500:]}")
    return program


def load_c(lab, name, text, device, *flags):
    """A program in C, put onto an interface of the receiver's namespace."""
    source = os.path.join(lab.scratch, f"{name}.c")
    with open(source, "w") as file:
        file.write(text)
    sh("clang", "-O2", "-g", "-target", "bpf", *flags, "-I/usr/include/x86_64-linux-gnu", "-c", source, "-o", source[:-1] + "o")
    sh("ip", "-n", lab.names[1], "link", "set", device, "xdpdrv", "obj", source[:-1] + "o", "sec", "xdp")


def flood(source, kind="--syn-flood", to_mac=RECEIVER_MAC):
    def argv(lab, seconds):
        return [EVENKEEL, "gen", SENDER, kind, "--random-sources", "--src", source, "--dst", VICTIM, "--dst-port", str(PORT), "--dst-mac",
                to_mac, "--rate", "max", "--duration", f"{seconds:.1f}s", "--cpus", str(SENDER_CPU)]

    return Generator("evenkeel gen", argv, EVENKEEL, "one flood, each source drawn anew")


def syn_flood(source, to_mac=RECEIVER_MAC):
    return flood(source, to_mac=to_mac)


# -- what stands at the receiving end

def _nothing(_lab):
    return None


def _xdp_filter(*features):
    def place(lab):
        filter_ = xdp_tool("xdp-filter")
        _inside(lab, *filter_, "load", "-m", "native", *features, "-p", "allow", RECEIVER)
        _inside(lab, *filter_, "port", str(PORT), "-m", "dst", "-p", "tcp")

    return place


def _xdp_filter_away(lab):
    _inside(lab, *xdp_tool("xdp-filter"), "unload", RECEIVER, check=False)


def _nft(text):
    def place(lab):
        path = os.path.join(lab.scratch, "rules.nft")
        with open(path, "w") as file:
            file.write(text)
        _inside(lab, "nft", "-f", path)

    return place


def _nft_away(lab):
    _inside(lab, "nft", "flush", "ruleset", check=False)


NFT_INGRESS = _nft(f"""table netdev ekb {{ chain first {{ type filter hook ingress device "{RECEIVER}" priority -500;
  tcp dport {PORT} drop
}}
}}""")
NFT_PREROUTING = _nft(f"table ip ekb {{ chain first {{ type filter hook prerouting priority -300; tcp dport {PORT} drop\n}}\n}}")


def _iptables(lab):
    _inside(lab, "iptables", "-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--dport", str(PORT), "-j", "DROP")


def _iptables_away(lab):
    _inside(lab, "iptables", "-t", "raw", "-F", check=False)


def _prefixes(count):
    """So many different prefixes of 17 to 32 bits, most of them long as blocklists have them; always the same, none in 198.18.0.0/15."""
    draw, found = random.Random(count), set()
    while len(found) < count:
        bits = draw.choice((17, 20, 22, 24, 24, 24, 28, 32, 32, 32))
        first = draw.getrandbits(bits) << (32 - bits)
        if first >> 17 != 0xC612 >> 1:
            found.add((first, bits))
    return [f"{a >> 24}.{a >> 16 & 255}.{a >> 8 & 255}.{a & 255}/{bits}" for a, bits in sorted(found)]


FLOOD = f'protocol = "tcp"\ndestination-port = {PORT}'


def rules_file(lab, prefixes, last="drop", rules=RULES, flooded=FLOOD):
    """A file of so many rules: two that pass, some of every kind that do not apply, the blocked prefixes, and the one for the flood."""
    folder = os.path.join(lab.scratch, f"shield-{prefixes}-{last}-{zlib.crc32(flooded.encode())}")
    path = os.path.join(folder, "rules.toml")
    if os.path.exists(path):
        return path
    os.makedirs(folder)
    with open(os.path.join(folder, "blocked.txt"), "w") as file:
        file.write("\n".join(_prefixes(prefixes)) + "\n")
    text = [f'default = "pass"\nprotect = ["{VICTIM}/32"]\n[sets.blocked]\nfile = "blocked.txt"\n']
    others = [
        'action = "drop"\nprotocol = "udp"\nsource-port = [123, 11211]', 'action = "drop"\nfragment = true',
        'action = "drop"\nprotocol = "icmp"\nlength = "1000-65535"', 'action = "drop"\nsource = "192.0.2.0/24"']
    for number in range(rules - 2):
        what = others[number] if number < len(others) else (
            f'action = "{("drop", "pass")[number % 2]}"\nprotocol = "{("tcp", "udp")[number % 2]}"\ndestination-port = {6000 + number}')
        text.append(f'[[rule]]\nname = "r{number}"\n{what}\n')
    text.append('[[rule]]\nname = "blocked"\naction = "drop"\nsource = "@blocked"\n')
    text.append(f'[[rule]]\nname = "flood"\naction = "{last}"\n{flooded}\n')
    with open(path, "w") as file:
        file.write("\n".join(text))
    return path


def running_shield(*where, rules, more=()):
    """`evenkeel shield run`, in place when its program is attached."""
    def place(lab):
        argv = [EVENKEEL, "shield", "run", *where, "--rules", rules(lab), "--json", *more]
        return start_inside(lab, "evenkeel shield", argv, READER_CPU, lab.xdp_attached)

    return place


# -- measuring

def _snmp(lab, name):
    """A counter of the receiver's IPv4."""
    with open(f"/proc/{lab.anchors['rx'].pid}/net/snmp") as file:
        names, values = [line.split() for line in file if line.startswith("Ip:")][:2]
    return int(values[names.index(name)])


def _trial(lab, standing, generator, counter, seconds, check=None):
    """One window: counts per second of `counter`."""
    lab.arrange(standing.receive)
    program = sender = None
    try:
        program = standing.place(lab)
        if standing.receive.startswith("apart"):
            lab.pin_napi_threads()
        time.sleep(WARM)
        sender = lab.start(generator.name, generator.argv(lab, SETTLE + seconds + 1.0), "gen", SENDER_CPU)
        first = counter(lab)
        if not wait_for(lambda: counter(lab) > first, 8.0, 0.01):
            raise Trouble(f"nothing came through:\n{sender.text()[-800:]}\n{program.text()[-800:] if program else ''}")
        time.sleep(SETTLE)
        reached, opened, ticks, start = _snmp(lab, "InReceives"), counter(lab), cpu_times(), time.monotonic()
        time.sleep(seconds)
        closed, span, shares = counter(lab), time.monotonic() - start, usage(ticks, cpu_times())
        figures = {"pps": (closed - opened) / span, "steal_percent": round(shares[None][1], 2),
                   "to_the_stack": _snmp(lab, "InReceives") - reached}
        if check:
            check(standing, figures, closed - opened)
        if program and not program.running():
            raise Trouble(f"{standing.name} ended early:\n{program.text()[-1500:]}")
    finally:
        for running in (sender, program):
            if running:
                running.stop()
                lab.forget(running)
        standing.remove(lab)
        lab.detach()
    return figures


def _ended_early(standing, figures, frames):
    """What ends in XDP must not reach the stack."""
    if standing.in_xdp and figures["to_the_stack"] > 0.001 * frames:
        raise Trouble(f"{standing.name} let {figures['to_the_stack']} of {frames} frames through")


def rates_table(lab, title, arrangement, filters, generator, counter, wanted, options, say, check=None):
    say(f"{title}: {arrangement}")
    results = {f.name: {"rounds": [], "trouble": None, "note": f.note} for f in filters}
    for f in filters:
        if not shutil.which(f.needs):
            results[f.name]["trouble"] = f"{f.needs} is not there"
    by_name = {f.name: f for f in filters}

    def measure(name):
        return undisturbed(lambda: _trial(lab, by_name[name], generator, counter, options.seconds, check))

    interleaved(results, options.rounds, measure, lambda figures: f"{figures['pps'] / 1e6:.3f} Mpps", say)
    for result in results.values():
        result["pps"] = median_of(result, "pps")
    return {
        "title": title, "kind": "rates", "generator": None, "arrangement": arrangement, "contenders": results,
        "ratios": [judged(ours, theirs, "frames", at_least, ratio(results, ours, theirs, "pps")) for ours, theirs, at_least in wanted],
    }


def _taken(lab):
    return lab.counters()[0]


BARE, FILTER, FILTER_TCP = "bare XDP_DROP", "xdp-filter", "xdp-filter, TCP ports only"
SHIELD = f"evenkeel shield, {RULES} rules, {PREFIXES:,} prefixes"


def drop(lab, _generator, options, say):
    """Table `drop`: frames ended per second, generator and filter on one core."""
    filters = [
        Filter(BARE, "the most that any filter can reach", _nothing, receive="drop"),
        Filter(SHIELD, "everything counted per rule and per protected address, detection on",
               running_shield(RECEIVER, rules=lambda lab: rules_file(lab, PREFIXES))),
        Filter(FILTER, "as it comes, able to look at addresses and ports; one port to drop", _xdp_filter(), _xdp_filter_away,
               needs=xdp_tool("xdp-filter")[-1]),
        Filter(FILTER_TCP, "loaded with -f tcp, which cannot look at addresses; one port to drop", _xdp_filter("-f", "tcp"), _xdp_filter_away,
               needs=xdp_tool("xdp-filter")[-1]),
        Filter("nft, ingress", "one rule: the port", NFT_INGRESS, _nft_away, needs="nft", in_xdp=False),
        Filter("nft, raw prerouting", "one rule: the port", NFT_PREROUTING, _nft_away, needs="nft", in_xdp=False),
        Filter("iptables, raw prerouting", "one rule: the port", _iptables, _iptables_away, needs="iptables", in_xdp=False),
    ]
    wanted = [(SHIELD, FILTER, 1.35), (SHIELD, FILTER_TCP, None), (SHIELD, BARE, 0.85), (SHIELD, "nft, ingress", None)]
    how = f"SYNs to one port from sources drawn anew among all of IPv4; generator and filter share core {SENDER_CPU}; every frame is dropped"
    return rates_table(lab, "drop", how, filters, syn_flood("0.0.0.0/0"), _taken, wanted, options, say, _ended_early)


def prefixes(lab, _generator, options, say):
    """Table `prefixes`: the same with more and more blocked prefixes."""
    counts = [10, 1_000, 100_000, 1_000_000]
    name = lambda count: f"{count:,} prefixes"  # noqa: E731 (a name for each row)
    filters = [
        Filter(name(count), f"{RULES} rules", running_shield(RECEIVER, rules=lambda lab, count=count: rules_file(lab, count)))
        for count in counts
    ]
    wanted = [(name(count), name(10), 0.87 if count == counts[-1] else None) for count in counts[1:]]
    how = f"as `drop`, evenkeel shield with more and more blocked prefixes of 17 to 32 bits in one of its {RULES} rules"
    return rates_table(lab, "prefixes", how, filters, syn_flood("0.0.0.0/0"), _taken, wanted, options, say, _ended_early)


# -- what the machine knows of a packet

NFT_STRAY = _nft("""table ip ekb { chain first { type filter hook prerouting priority -150;
  ct state invalid drop
}
}
""")


def _served(place):
    """Behind a server that listens at the flooded TCP port; nobody does at the UDP one."""
    def both(lab):
        _server(lab)
        return place(lab)

    return both


def _stray_nft(lab):
    NFT_STRAY(lab)
    _inside(lab, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_loose=0")


def _stray_nft_away(lab):
    _inside(lab, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_loose=1", check=False)
    _server_away(lab)


def _known(name, note, condition):
    return Filter(name, note, _served(running_shield(RECEIVER, rules=lambda lab: rules_file(lab, PREFIXES, flooded=condition))), _server_away)


def strays(lab, _generator, options, say):
    """Table `strays`: ACKs of no connection, to a port that is listened to."""
    ours, theirs = f"{SHIELD}, connection", "nft, ct state invalid"
    filters = [
        Filter(BARE, "the most that any filter can reach", _nothing, receive="drop"),
        _known(ours, "the flood's rule asks `connection = \"none\"`", FLOOD + '\nconnection = "none"'),
        Filter(theirs, "prerouting, nf_conntrack_tcp_loose=0", _served(_stray_nft), _stray_nft_away, needs="nft", in_xdp=False),
    ]
    how = f"ACKs of no connection to a port that is listened to, sources drawn anew; generator and filter share core {SENDER_CPU}; every frame is dropped"
    return rates_table(lab, "strays", how, filters, flood("0.0.0.0/0", "--tcp"), _taken, [(ours, BARE, 0.45), (ours, theirs, None)], options, say, _ended_early)


def unasked(lab, _generator, options, say):
    """Table `unasked`: UDP to a port that nobody listens to."""
    ours, theirs = f"{SHIELD}, listener", "plain kernel"
    condition = f'protocol = "udp"\ndestination-port = {PORT}\nlistener = "no"'
    filters = [
        Filter(BARE, "the most that any filter can reach", _nothing, receive="drop"),
        _known(ours, "the flood's rule asks `listener = \"no\"`", condition),
        Filter(theirs, "it looks for a socket and finds none", _served(_nothing), _server_away, in_xdp=False),
    ]
    how = f"UDP to a port that nobody listens to, sources drawn anew; generator and filter share core {SENDER_CPU}; every frame is dropped"
    return rates_table(lab, "unasked", how, filters, flood("0.0.0.0/0", "--udp"), _taken, [(ours, BARE, 0.45), (ours, theirs, None)], options, say, _ended_early)


def passed(lab, _generator, options, say):
    """Table `pass`: frames that the kernel routes on behind the shield."""
    box = Box("forward", "kernel routing", RECEIVER_MAC, [], True)

    def routed(place):
        def both(lab):
            build_box(lab, box)
            return place(lab)

        return both

    without, behind = "no shield", f"behind evenkeel shield, {RULES} rules, {PREFIXES:,} prefixes"
    filters = [
        Filter(without, f"the kernel routes into {SINK}, which throws away", routed(_nothing), receive="apart-stack", in_xdp=False),
        Filter(behind, "the flood's rule passes it", routed(running_shield(RECEIVER, rules=lambda lab: rules_file(lab, PREFIXES, "pass"))),
               receive="apart-stack", in_xdp=False),
    ]
    how = f"the kernel routes on core {READER_CPU} (NAPI kthread) what core {SENDER_CPU} sends; frames that were routed"
    return rates_table(lab, "pass", how, filters, syn_flood("198.18.0.0/16"), lambda lab: _snmp(lab, "ForwDatagrams"),
                  [(behind, without, 0.9)], options, say)


# -- SYN cookies

def _server(lab):
    """An address, a way back to all sources, a server; answers end at the sender's port as soon as they come."""
    gen, rx = lab.names
    sh("ip", "-n", gen, "link", "set", SENDER, "xdpdrv", "obj", lab.drop_object, "sec", "xdp")
    sh("ip", "-n", rx, "addr", "replace", f"{VICTIM}/16", "dev", RECEIVER)
    sh("ip", "-n", rx, "neigh", "replace", "198.19.0.2", "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", RECEIVER)
    sh("ip", "-n", rx, "route", "replace", "default", "via", "198.19.0.2", "dev", RECEIVER)
    for setting in ("all.rp_filter=0", f"{RECEIVER}.rp_filter=0"):
        _inside(lab, "sysctl", "-qw", f"net.ipv4.conf.{setting}")
    lab.server = lab.start("server", ["python3", "-c", f"import socket,time; s=socket.create_server(('{VICTIM}',{PORT}),backlog=4096); time.sleep(9999)"],
                           "rx", READER_CPU)
    time.sleep(0.3)


def _server_away(lab):
    if getattr(lab, "server", None):
        lab.server.stop()
        lab.forget(lab.server)
        lab.server = None
    _nft_away(lab)
    _inside(lab, "sysctl", "-qw", "net.ipv4.tcp_syncookies=1", check=False)
    sh("ip", "-n", lab.names[0], "link", "set", SENDER, "xdpdrv", "off", check=False)
    sh("ip", "-n", lab.names[1], "addr", "flush", "dev", RECEIVER, check=False)


def _cookies(value, more=_nothing):
    def place(lab):
        _server(lab)
        _inside(lab, "sysctl", "-qw", f"net.ipv4.tcp_syncookies={value}")
        return more(lab)

    return place


SYNPROXY = _nft(f"""table ip ekb {{
  chain raw {{ type filter hook prerouting priority -300; tcp dport {PORT} tcp flags syn notrack
  }}
  chain in {{ type filter hook input priority 0; tcp dport {PORT} ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
  }}
}}""")


def _challenge(lab):
    folder = os.path.join(lab.scratch, "shield-challenge")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "rules.toml")
    with open(path, "w") as file:
        file.write(f'[[rule]]\nname = "syn"\naction = "challenge"\nprotocol = "tcp"\ndestination-port = {PORT}\n')
    return path


# All that an answer in XDP cannot do without: every frame is taken for a SYN without options, turned round with one multiplication as its cookie, and sent back.
TURN = """
#include <linux/types.h>
#define SEC(name) __attribute__((section(name), used))
struct md { __u32 data, data_end, data_meta, ingress; };
static long (*redirect)(unsigned int to, unsigned long long flags) = (void *)23; /* BPF_FUNC_redirect */
static __u32 folded(__u64 sum) { sum = (sum & 0xffff) + (sum >> 16); sum = (sum & 0xffff) + (sum >> 16); sum = (sum & 0xffff) + (sum >> 16); return ~sum & 0xffff; }
SEC("xdp") int turn(struct md *ctx)
{
	__u16 *half = (void *)(long)ctx->data, kept;
	__u32 *word = (void *)half + 14, address, i;
	__u64 sum, hash;
	if ((void *)(half + 30) > (void *)(long)ctx->data_end)
		return 1;
	for (i = 0; i < 3; i++) { kept = half[i]; half[i] = half[3 + i]; half[3 + i] = kept; }
	address = word[3]; word[3] = word[4]; word[4] = address;
	kept = half[17]; half[17] = half[18]; half[18] = kept;
	hash = (((__u64)word[3] << 32 | word[4]) ^ half[17]) * 0x9e3779b97f4a7c15ULL;
	word[7] = __builtin_bswap32(__builtin_bswap32(word[6]) + 1);
	word[6] = hash >> 32;
	word[8] = 0x0000fa << 16 | 0x1250;
	word[9] = 0;
	sum = 0x0600 + 0x1400;
	for (i = 3; i < 9; i++) sum += word[i];
	half[25] = folded((sum & 0xffffffff) + (sum >> 32));
	return redirect(ctx->ingress, 0);
}
char LICENSE[] SEC("license") = "GPL";
"""


def _turn(lab):
    """Sources are all over: the way back is the redirect, as the shield's on a veth."""
    _server(lab)
    load_c(lab, "turn", TURN, RECEIVER, "-mcpu=v3")


def cookies(lab, _generator, options, say):
    """Table `cookies`: SYNs answered per second on one core."""
    plain, proxy, ours = "plain kernel, tcp_syncookies=2", "nft synproxy", "evenkeel shield, challenge"
    bare = "bare answer"
    filters = [
        Filter(bare, "each frame is turned round with one multiplication as its cookie, and redirected: nothing is looked up, checked or counted", _turn, _server_away),
        Filter(plain, "a listener, its backlog 4096", _cookies(2), _server_away, in_xdp=False),
        Filter(proxy, "SYNs untracked, as its manual has it", _cookies(1, SYNPROXY), _server_away, needs="nft", in_xdp=False),
        Filter(ours, "cookies made in XDP", _cookies(1, running_shield(RECEIVER, rules=_challenge)), _server_away),
    ]
    how = f"SYN flood to a listening port, sources drawn anew; generator, answers and their end share core {SENDER_CPU}; answers that came back to the sender's port"

    def answers(lab):
        with open(f"/proc/{lab.anchors['gen'].pid}/net/dev") as file:
            line = next(line for line in file if line.strip().startswith(f"{SENDER}:"))
        return int(line.split(":")[1].split()[1])

    return rates_table(lab, "cookies", how, filters, syn_flood("10.0.0.0/8"), answers, [(ours, bare, 0.72), (ours, plain, 9), (ours, proxy, 4)], options, say)

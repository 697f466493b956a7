"""The tables: which contenders meet in which arrangement, and which ratios between them are wanted."""

import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import termios
import time

from . import contenders as all_of
from . import cost, gateways, rfc2544, route, shield, verbs
from .lab import Trouble
from .peers import EVENKEEL
from .trial import judged, median_of, ratio, rounds

SPREAD_FIXTURE = "fixtures/mlx5-64q-128cpu.tar"


class Wanted:
    """A ratio that is wanted: ours to theirs, in one metric, at least so much."""

    def __init__(self, ours, theirs, at_least, metric="reader_pps"):
        self.ours, self.theirs, self.at_least, self.metric = ours, theirs, at_least, metric

    def judge(self, results):
        return judged(self.ours, self.theirs, self.metric, self.at_least, ratio(results, self.ours, self.theirs, self.metric))


def _present(candidates, say):
    """Leaves out contenders whose program is not there, and says so."""
    present, absent = [], []
    for contender in candidates:
        (present if shutil.which(contender.needs) else absent).append(contender)
    for contender in absent:
        say(f"  {contender.name}: left out, {contender.needs} is not there")
    return present, {contender.name: f"{contender.needs} is not there" for contender in absent}


def _packet_table(lab, title, arrangement, receive, metric, candidates, wanted, options, say, generator=None):
    """Measures one table of packet rates. With a generator the contenders are readers, without one they are generators."""
    say(f"{title}: {arrangement}")
    present, absent = _present(candidates, say)

    def pair(contender):
        if generator is None:
            return contender, None
        return generator, None if contender is all_of.NOTHING else contender

    results = rounds(lab, present, pair, options.seconds, options.rounds, lambda contender: getattr(contender, "receive", receive), say)
    for name, why in absent.items():
        results[name] = {"rounds": [], "trouble": why}
    for contender in candidates:
        result = results[contender.name]
        result["note"] = contender.note
        for figure in ("offered_pps", "stack_pps", "reader_pps", "kept_share", "offered_frames"):
            result[figure] = median_of(result, figure)
    return {
        "title": title, "arrangement": arrangement, "metric": metric, "generator": generator.name if generator else None,
        "contenders": {contender.name: results[contender.name] for contender in candidates},
        "ratios": [item.judge(results) for item in wanted],
    }


def generators(lab, _generator, options, say):
    """Table `gen`."""
    wanted = [
        Wanted("evenkeel gen", "live_frames", 0.95, "stack_pps"),
        Wanted("evenkeel gen", "trafgen, fixed frame", 10, "stack_pps"),
        Wanted("evenkeel gen", "trafgen, fixed frame, no XDP", 10, "stack_pps"),
        Wanted("evenkeel gen", "xdp-trafficgen", None, "stack_pps"),
        Wanted("evenkeel gen", "tcpreplay", None, "stack_pps"),
        Wanted("evenkeel gen", "tcpreplay, no XDP", None, "stack_pps"),
    ]
    return _packet_table(
        lab, "gen", "inline into XDP_DROP: sending and dropping share one core", "drop", "stack_pps", all_of.GENERATORS,
        wanted, options, say)


def inline(lab, generator, options, say):
    """Table `inline`."""
    readers = [
        all_of.NOTHING, all_of.TCPDUMP, all_of.DUMPCAP, all_of.XDPDUMP, all_of.EVENKEEL_RING_NULL, all_of.NETSNIFF, all_of.TPACKET_RX,
        all_of.EVENKEEL_RING, all_of.EVENKEEL_RING_COUNT, all_of.XSK_RX, all_of.XDP_BENCH, all_of.EVENKEEL_XDP, all_of.EVENKEEL_TAP,
        all_of.EVENKEEL_CONSUME,
    ]
    nothing = all_of.NOTHING.name
    wanted = [
        Wanted("evenkeel ring", "tpacket_rx", 1.0),
        Wanted("evenkeel xdp", "xsk_rx", 1.0),
        Wanted("evenkeel tap", nothing, 0.8, "stack_pps"),
        Wanted("tpacket_rx", nothing, None, "stack_pps"),
        Wanted("evenkeel tap --consume", "xsk_rx", 1.2),
        Wanted(all_of.EVENKEEL_RING_NULL.name, "tcpdump", None),
        Wanted(all_of.EVENKEEL_RING_NULL.name, "dumpcap", None),
    ]
    return _packet_table(
        lab, "inline", "sending and receive work share one core, which throttles the load; the reader has the other core", "stack",
        "reader_pps", readers, wanted, options, say, generator)


def write(lab, generator, options, say):
    """Table `write`."""
    # The ring takes the kernel path that tcpdump's takes, and the sending core limits both: a faster reader cannot show.
    wanted = [
        Wanted(ours, theirs, None if ours == "evenkeel ring" else at_least)
        for ours in ("evenkeel ring", "evenkeel tap", "evenkeel tap --consume")
        for theirs, at_least in (("dumpcap", 2.0), ("tcpdump", 1.3))
    ]
    return _packet_table(
        lab, "write", "as inline, whole frames to a file on a RAM disk", "stack", "reader_pps", all_of.writers(lab.scratch), wanted,
        options, say, generator)


def apart(lab, generator, options, say):
    """Table `apart`."""
    readers = [
        all_of.NOTHING, all_of.TCPDUMP, all_of.DUMPCAP, all_of.EVENKEEL_TAP_NULL, all_of.EVENKEEL_CONSUME_NULL, all_of.XSK_RX,
        all_of.EVENKEEL_PACKET, all_of.EVENKEEL_RING, all_of.EVENKEEL_XDP, all_of.EVENKEEL_TAP, all_of.EVENKEEL_CONSUME,
        all_of.EVENKEEL_AUTO, all_of.EVENKEEL_AUTO_CONSUME,
    ]
    table = _packet_table(
        lab, "apart", "the generator has a core of its own; receive work (a NAPI kthread) and reader share the other: overload",
        "apart-stack", "reader_pps", readers, [], options, say, generator)
    results = table["contenders"]
    ours = {
        name: result["reader_pps"]["median"] for name, result in results.items()
        if name.startswith("evenkeel") and "auto" not in name and "/dev/null" not in name and result["reader_pps"]
    }
    if ours:
        best = max(ours, key=ours.get)
        # tcpdump formats what it reads: beside the best, which counts, stand those of ours that format, too.
        wanted = [
            Wanted(best, "tcpdump", 2.0), Wanted(all_of.EVENKEEL_CONSUME_NULL.name, "tcpdump", 2.0),
            Wanted(all_of.EVENKEEL_TAP_NULL.name, "tcpdump", None),
        ]
        # Told that the frames may end here, `auto` has every backend to choose from. Otherwise the stack makes a buffer of each and
        # drops it on the core that the reader needs, whatever `auto` does.
        for auto, at_least in ((all_of.EVENKEEL_AUTO.name, None), (all_of.EVENKEEL_AUTO_CONSUME.name, 2.0)):
            wanted += [Wanted(auto, "tcpdump", at_least), Wanted(auto, best, None)]
        table["ratios"] = [item.judge(results) for item in wanted]
    return table


def ceiling(lab, generator, options, say):
    """What the generator gives into a bare XDP_DROP, inline and apart: no reader's figure means anything near it."""
    found = {}
    for name, receive in (("inline", "drop"), ("apart", "apart-drop")):
        results = rounds(
            lab, [generator], lambda contender: (contender, None), options.seconds, min(3, options.rounds), lambda _: receive, say)
        found[name] = median_of(results[generator.name], "offered_pps")
    return found


def spread(_lab, _generator, options, say):
    """Table `spread`: a plan for 64 queues on 128 CPUs, unpacking included."""
    return cost.answer("spread", ["spread", "plan", "--root", SPREAD_FIXTURE], 50, options, say, times=4)


def top(lab, generator, options, say):
    """Table `top`: processor time of `evenkeel top` at one refresh a second, piped and live, as a share of one core."""
    seconds = 10 if options.quick else 20
    command = [EVENKEEL, "top", "--interval", "1", "--count", str(seconds)]
    shares = {"piped": _cost([*command, "--json"], seconds, False), "live, 200x50": _cost(command, seconds, True)}
    for name, share in shares.items():
        say(f"top, {name}: {share:.2f} % of a core")
    worst = max(shares.values())
    return {
        "title": "top", "arrangement": f"{seconds} refreshes, one a second", "unit": "% of one core", "value": shares,
        "below": 1, "met": worst < 1,
    }


def _need_evenkeel():
    if not shutil.which(EVENKEEL):
        raise Trouble(f"{EVENKEEL} is not there: cargo build --release")


def _cost(argv, seconds, terminal):
    """Processor time of a command as a share of one core, its output read from a pipe or from a terminal."""
    _need_evenkeel()
    if terminal:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    else:
        ours, theirs = os.pipe()
    start = time.monotonic()
    child = subprocess.Popen(
        argv, stdin=theirs if terminal else subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"})
    os.close(theirs)
    shown = b""
    try:
        while piece := _read(ours, start + seconds + 30 - time.monotonic()):
            shown = (shown + piece)[-2000:]
        if time.monotonic() > start + seconds + 30:
            child.kill()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    finally:
        os.close(ours)
        if child.returncode is None:
            child.kill()
            child.wait()
    span = time.monotonic() - start
    if child.returncode or span < seconds - 2:
        raise Trouble(f"{' '.join(argv)}: ended after {span:.1f} s with {child.returncode}: {shown.decode(errors='replace')[-500:]}")
    return 100 * (used.ru_utime + used.ru_stime) / span


def _read(descriptor, patience):
    """What comes next; nothing at the end (a terminal whose last user is gone gives EIO) or after too long."""
    if not select.select([descriptor], [], [], max(0, patience))[0]:
        return b""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


TABLES = {
    "gen": generators, "inline": inline, "apart": apart, "write": write, "spread": spread, "top": top, "cost": cost.table,
    "ledger": cost.ledger_answer, "doctor": cost.doctor_answer, "bench": rfc2544.table,
    "drop": shield.drop, "prefixes": shield.prefixes, "strays": shield.strays, "unasked": shield.unasked,
    "pass": shield.passed, "between": gateways.between, "gateways": gateways.gateways, "cookies": shield.cookies,
    "route": route.one, "route-many": route.many, "route-full": route.full,
    "stateful": verbs.stateful, "link": verbs.link,
}

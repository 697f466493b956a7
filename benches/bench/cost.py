"""Table `cost`: what being watched takes of a box's throughput, and how soon the watchers answer.

The generator and the box share one core, and so does the watcher: its own processor time counts as well as what it does to each frame. The load
throttles itself there: no frame is refused. With the box on a core of its own (a NAPI kthread behind a flood) most frames are refused by a full ring,
and the same work took 1.2 or 2.4 million frames a second, as the ring and the caches had it. Windows without and with a watcher take turns while the
frames keep coming; a ratio is one window with to the mean of the windows right before and right after it, because the box itself drifts by more than
what is looked for."""

import json
import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

from .contenders import EVENKEEL_GEN, yardstick
from .lab import RECEIVER, RECEIVER_MAC, SENDER, SENDER_CPU, Trouble, cpu_times, sh, usage, wait_for
from .peers import EVENKEEL, REPOSITORY
from .trial import interleaved, judged, spread, undisturbed

SINK = "ekb2"
WARM = 2.5  # seconds after which a watcher has its programs and tables in place
WANTED = 0.99
WANTED_OF_EMPTY = 0.98
LEDGER_ANSWER_MS, DOCTOR_ANSWER_MS = 2000, 1000


@dataclass
class Box:
    """What the receiver's namespace does with the frames, and the check that it does."""

    name: str
    does: str
    to_mac: str
    rules: list  # commands in the receiver's namespace
    forwards: bool


@dataclass
class Watcher:
    """A program that looks at the whole machine until SIGINT."""

    name: str
    argv: Callable  # (hz) -> command
    needs: str
    note: str
    boxes: tuple = ("forward", "drop", "rule")


BOXES = [
    Box("forward", "kernel routing into a device that throws everything away without counting it as a drop", RECEIVER_MAC, [], True),
    Box("drop", "every frame is for another host: the cheapest drop there is, and with that the dearest to trace", "02:00:00:00:00:02", [], False),
    Box("rule", "an nft rule drops every frame", RECEIVER_MAC, [
        "nft add table ip ekb", "nft add chain ip ekb first { type filter hook prerouting priority -300; }",
        "nft add rule ip ekb first counter drop"], False),
]

# `ip netns exec` mounts a /sys of its own, without tracefs.
TRACEFS = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "
KFREE_SKB = "tracepoint:skb:kfree_skb { @[args->reason, args->location] = count(); }"

LEDGER = Watcher(
    "evenkeel ledger", lambda hz: [EVENKEEL, "ledger", "--interval", "1", "--count", "3600", "--json"], EVENKEEL,
    "defaults, an answer a second")
PROFILE = Watcher(
    "evenkeel profile", lambda hz: [EVENKEEL, "profile", "--duration", "3600s", "--json"], EVENKEEL, "defaults", ("forward", "drop"))
PERF = Watcher(
    "perf record", lambda hz: ["perf", "record", "-a", "-g", "-e", "cpu-clock", "-F", str(hz), "-o", "perf.data"], "perf",
    "-a -g -e cpu-clock, as often as evenkeel profile, to a RAM disk", ("forward", "drop"))
BPFTRACE = Watcher(
    "bpftrace kfree_skb", lambda hz: ["sh", "-c", TRACEFS + shlex.join(["bpftrace", "-e", KFREE_SKB])], "bpftrace",
    "every drop counted by reason and location, nothing printed")
EMPTY = Watcher(
    "empty program on kfree_skb", lambda hz: [yardstick("empty_tracepoint"), "kfree_skb"], yardstick("empty_tracepoint"),
    "the least that a look at every drop costs: `return 0` in C", ("drop", "rule"))
WATCHERS = [LEDGER, EMPTY, PROFILE, PERF, BPFTRACE]


def table(lab, _generator, options, say):
    """Table `cost`."""
    if not os.path.exists(EVENKEEL):
        raise Trouble(f"{EVENKEEL} is not there: cargo build --release")
    hz, why = _frequency()
    say(f"cost: watchers beside a saturated box; profile at {hz} Hz")
    contenders = {}
    for box in BOXES:
        try:
            contenders.update(_box(lab, box, hz, why, options, say))
        finally:
            _clear(lab)
    return {
        "title": "cost", "kind": "cost", "generator": None, "frequency_hz": hz, "contenders": contenders, "ratios": _ratios(contenders),
        "arrangement": f"generator, box and watcher share core {SENDER_CPU}, so that the load throttles itself and no frame is refused. " + ". ".join(f"*{box.name}*: {box.does}" for box in BOXES),
    }


def ledger_answer(_lab, _generator, options, say):
    """Table `ledger`: from its start to its first answer."""
    return answer("ledger", ["ledger", "--once", "--json"], LEDGER_ANSWER_MS, options, say)


def doctor_answer(_lab, _generator, options, say):
    """Table `doctor`: all checks of the live machine that measure nothing."""
    return answer("doctor", ["doctor", "--json"], DOCTOR_ANSWER_MS, options, say)


def answer(title, verb, below, options, say, times=1):
    """Wall time of a command, program start included. A finding (exit code 1) is an answer, too."""
    if not os.path.exists(EVENKEEL):
        raise Trouble(f"{EVENKEEL} is not there: cargo build --release")
    took = []
    for _ in range(times * options.rounds):
        start = time.monotonic()
        done = subprocess.run([EVENKEEL, *verb], capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
        took.append(1000 * (time.monotonic() - start))
        if done.returncode not in (0, 1) or not done.stdout:
            raise Trouble(f"evenkeel {' '.join(verb)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    value = spread(took)
    say(f"{title}: {value['median']:.0f} ms")
    return {
        "title": title, "arrangement": f"`evenkeel {' '.join(verb)}` on this machine, program start included", "unit": "ms",
        "value": value, "below": below, "met": value["median"] < below,
    }


def _frequency():
    """How often `evenkeel profile` samples by itself, and why that is not known."""
    done = subprocess.run([EVENKEEL, "profile", "--duration", "1s", "--json"], capture_output=True, text=True, timeout=60)
    try:
        return _find(json.loads(done.stdout), "frequency_hz"), None
    except (ValueError, LookupError):
        return 99, f"evenkeel profile --duration 1s --json: exit code {done.returncode}: {done.stderr.strip()[-300:]}"


def _find(document, key):
    """A field of a JSON document, in whichever envelope it is."""
    for value in [document, *(v for v in document.values() if isinstance(v, dict))]:
        if key in value:
            return value[key]
    raise LookupError(key)


def _build(lab, box):
    """Makes the receiver's namespace this box. The sink stays; it belongs to the namespace."""
    rx = lab.names[1]

    def inside(command):
        sh("ip", "netns", "exec", rx, *shlex.split(command))

    lab.arrange("stack")
    if SINK not in sh("ip", "-n", rx, "link"):
        kinds = ("dummy", "ifb")
        made = any(_tried("ip", "-n", rx, "link", "add", SINK, "type", kind) for kind in kinds)
        if not made:
            raise Trouble(f"no device to route into: this kernel has none of {', '.join(kinds)}")
        for command in (
            f"ip link set {SINK} txqueuelen 0 up", f"ip addr add 192.0.2.1/24 dev {SINK}",
            f"ip neigh replace 192.0.2.2 lladdr 02:00:00:00:00:03 nud permanent dev {SINK}",
            f"ip route add 198.19.0.0/16 via 192.0.2.2 dev {SINK}",
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0", f"sysctl -qw net.ipv4.conf.{RECEIVER}.rp_filter=0",
        ):
            inside(command)
    for rule in box.rules:
        inside(rule)


def _tried(*argv):
    return subprocess.run(argv, capture_output=True).returncode == 0


def _clear(lab):
    _tried("ip", "netns", "exec", lab.names[1], "nft", "delete", "table", "ip", "ekb")


def _soft_interrupts():
    """The kernel thread that takes over soft interrupts of the box's core."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm:
                if comm.read().strip() == f"ksoftirqd/{SENDER_CPU}":
                    return int(pid)
        except OSError:
            continue  # the process ended meanwhile
    raise Trouble(f"there is no ksoftirqd/{SENDER_CPU}")


def _run_seconds(pid):
    """Processor time of all threads of a process in seconds, to the nanosecond; soft interrupts on top of them included (but in kernels that account
    interrupts apart)."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    except OSError as error:
        raise Trouble(f"/proc/{pid}/task: {error.strerror}; it takes a kernel with CONFIG_SCHED_INFO") from error
    return total / 1e9


def _forwarded(lab):
    """Datagrams that the box has forwarded."""
    with open(f"/proc/{lab.anchors['rx'].pid}/net/snmp") as file:
        names, values = [line.split() for line in file if line.startswith("Ip:")][:2]
    return int(values[names.index("ForwDatagrams")])


def _box(lab, box, hz, why, options, say):
    """All watchers of one box, in interleaved rounds."""
    _build(lab, box)
    results = {}
    for watcher in WATCHERS:
        if box.name in watcher.boxes:
            trouble = why if watcher is PROFILE else None
            if not _tried("which", watcher.needs):
                trouble = f"{watcher.needs} is not there"
            results[f"{watcher.name}, {box.name}"] = {"rounds": [], "trouble": trouble, "note": watcher.note, "watcher": watcher}

    def measure(name):
        return undisturbed(lambda: _once(lab, box, results[name]["watcher"], hz, options.seconds))

    def shown(figures):
        return (f"{figures['ratio']:.4f} ({figures['work_ratio']:.4f} by processor time) of {figures['without_pps'] / 1e6:.3f} Mpps, "
                f"{figures['added_ns']:.1f} ns a frame, {figures['watcher_cpu_percent']} % of a core")

    interleaved(results, options.rounds, measure, shown, say)
    for result in results.values():
        del result["watcher"]
    return results


def _once(lab, box, watcher, hz, seconds):
    """One window with the watcher between two without."""
    generator = [*EVENKEEL_GEN.argv(lab, 3 * seconds + WARM + 10), "--dst-mac", box.to_mac]
    seen = lab.counters()[0]
    sender = lab.start("generator", generator, "gen", SENDER_CPU)
    program = None
    try:
        if not wait_for(lambda: lab.counters()[0] > seen, 8.0, 0.01):
            raise Trouble(f"{SENDER} sent nothing:\n{sender.text()[-1500:]}")
        time.sleep(0.3)
        before = _window(lab, box, seconds, sender)
        known = _programs()
        program = lab.start(watcher.name, watcher.argv(hz), "rx", SENDER_CPU)
        time.sleep(WARM)
        if not program.running():
            raise Trouble(f"{watcher.name} ended:\n{program.text()[-1500:]}")
        watched = _window(lab, box, seconds, sender, program)
        if not program.running():
            raise Trouble(f"{watcher.name} ended early:\n{program.text()[-1500:]}")
        in_kernel = _in_kernel(known, seconds)
        program.stop()
        time.sleep(0.3)
        after = _window(lab, box, seconds, sender)
        if not sender.running():
            raise Trouble(f"the generator ended early:\n{sender.text()[-1500:]}")
    finally:
        for started in filter(None, (program, sender)):
            started.stop()
            lab.forget(started)
    windows = (before, watched, after)
    without = (before["pps"] + after["pps"]) / 2
    return {
        "with_pps": watched["pps"], "without_pps": without, "ratio": watched["pps"] / without,
        "work_ratio": watched["per_second_of_work"] / ((before["per_second_of_work"] + after["per_second_of_work"]) / 2),
        "added_ns": 1e9 / watched["pps"] - 1e9 / without,
        "unwatched_ratio": after["pps"] / before["pps"], "watcher_cpu_percent": round(100 * watched["own"] / watched["span"], 2),
        "in_kernel_percent": in_kernel,
        "box_core_percent": round(watched["box_core"], 1), "steal_percent": round(max(w["steal"] for w in windows), 2),
    }


def _programs():
    """Run time of every kernel program in nanoseconds, by its number; 0 where nobody measures it. None without bpftool."""
    try:
        done = subprocess.run(["bpftool", "--json", "prog", "show"], capture_output=True, text=True, timeout=20)
        return {program["id"]: program.get("run_time_ns", 0) for program in json.loads(done.stdout)}
    except (OSError, ValueError):
        return None


def _in_kernel(known, seconds):
    """Run time of the kernel programs that are not among the known, in percent of one core; measuring it slows them a little, so that this
    has a window of its own. None when it cannot be told."""
    switch = "/proc/sys/kernel/bpf_stats_enabled"
    if known is None or not os.path.exists(switch):
        return None
    with open(switch) as file:
        was = file.read()
    try:
        with open(switch, "w") as file:
            file.write("1")
        start, first = time.monotonic(), _programs()
        time.sleep(seconds)
        last, span = _programs(), time.monotonic() - start
    finally:
        with open(switch, "w") as file:
            file.write(was)
    return round(100e-9 * sum(last[number] - first.get(number, 0) for number in last if number not in known) / span, 3)


def _window(lab, box, seconds, sender, program=None):
    """What the box did in a window, and what it, its sender and the watcher used of the processor for it."""
    working = [sender.pid, _soft_interrupts()]
    (taken, refused), forwarded, ticks, start = lab.counters(), _forwarded(lab), cpu_times(), time.monotonic()
    worked, burnt = sum(map(_run_seconds, working)), _run_seconds(program.pid) if program else 0
    time.sleep(seconds)
    worked, burnt = sum(map(_run_seconds, working)) - worked, _run_seconds(program.pid) - burnt if program and program.running() else 0
    span = time.monotonic() - start
    shares = usage(ticks, cpu_times())
    (took, refuses), forwarded = lab.counters(), _forwarded(lab) - forwarded
    taken, refused = took - taken, refuses - refused
    if refused > 0.001 * taken:
        raise Trouble(f"box {box.name}: {refused} frames were refused beside {taken} taken; the load is to throttle itself")
    if box.forwards != (forwarded > 0.9 * taken):
        raise Trouble(f"box {box.name}: {forwarded} of {taken} frames were forwarded")
    return {
        "pps": taken / span, "span": span, "steal": shares[None][1], "box_core": shares[SENDER_CPU][0], "own": burnt,
        "per_second_of_work": taken / max(worked + burnt, 1e-9),
    }


PEERS = {LEDGER.name: [(EMPTY.name, WANTED_OF_EMPTY), (BPFTRACE.name, None)], PROFILE.name: [(PERF.name, None)]}


def _ratios(contenders):
    """Ours to the unwatched box, which is wanted; and ours to its peer's, made within each round."""
    found = []
    for name, result in contenders.items():
        watcher, box = name.rsplit(", ", 1)
        wanted = WANTED if watcher in (LEDGER.name, PROFILE.name) else None
        found.append(judged(name, "nothing watching", "throughput", wanted, spread([figures["ratio"] for figures in result["rounds"]])))
        for peer, at_least in PEERS.get(watcher, []):
            theirs = contenders.get(f"{peer}, {box}")
            if theirs:
                pairs = [ours["ratio"] / their["ratio"] for ours, their in zip(result["rounds"], theirs["rounds"])]
                found.append(judged(name, peer, "throughput", at_least, spread(pairs)))
    return found

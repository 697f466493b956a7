"""Table `bench`: how fast `evenkeel bench` sends and receives by itself, how well it keeps its pace, what its stamps cost, and how long a
quick run takes.

The bench builds its own lab; the peers meet in the lab of the other tables, on the same core. Its own rates are read from its run file."""

import json
import math
import os
import shutil
import statistics
import tempfile
import time

from .contenders import Generator
from .lab import READER_CPU, RECEIVER, SENDER, SENDER_CPU, Program, Trouble, cpu_times, sh, usage, wait_for
from .peers import EVENKEEL
from .trial import judged, median_of, ratio, trial, undisturbed

CEILING, UNPACED, FOUND = "evenkeel bench, wire's ceiling", "evenkeel bench, unpaced", "evenkeel bench, throughput of wire"
GEN, IPERF, IPERF_ONE = "evenkeel gen --udp", "iperf3", "iperf3, server on the same core"
WANTED = [(CEILING, GEN, 0.8), (CEILING, IPERF, 10), (CEILING, IPERF_ONE, 10), (UNPACED, GEN, None), (FOUND, GEN, None)]

WIRE = ["--dut", "wire", "--one-way", "--sizes", "64", "--tests", "throughput", "--preset", "quick"]
RATES = [1_000, 10_000, 100_000, 1_000_000]  # units per second
ERROR_PERCENT, RESOLUTION_NS, QUICK_S = 1, 1000, 240
RUN_TIMEOUT = 180.0  # seconds for a run of one size on the wire

# An address pair that no other table uses; it is there only while iperf3 runs.
SERVER, CLIENT, PORT = "198.18.254.2", "198.18.254.1", 5201

GEN_UDP = Generator(
    GEN, lambda lab, seconds: [
        EVENKEEL, "gen", SENDER, "--udp", "--rate", "max", "--duration", f"{seconds:.1f}s", "--cpus", str(SENDER_CPU), "--flows", "1"],
    EVENKEEL, "one flow into a bare XDP_DROP")


def _iperf(name, note):
    return Generator(
        name, lambda lab, seconds: ["iperf3", "-c", SERVER, "-u", "-b", "0", "-l", "18", "-i", "0", "-t", str(math.ceil(seconds))],
        "iperf3", note, "plain")


# The bench has one core for all; the peer is counted where it does best, too.
IPERFS = {
    IPERF: (_iperf(IPERF, "-u -b 0 -l 18; its server has the other core; what reached the interface, read or not"), READER_CPU),
    IPERF_ONE: (_iperf(IPERF_ONE, "-u -b 0 -l 18; all on one core; what reached the interface, read or not"), SENDER_CPU),
}
NOTES = {
    CEILING: "paced, loss at most 0.1 %, numbered and stamped, one core for all",
    UNPACED: "as fast as it can, what arrived",
    FOUND: "the search's result, a box that is none",
    GEN: GEN_UDP.note, **{name: generator.note for name, (generator, _) in IPERFS.items()},
}


def table(lab, _generator, options, say):
    """Table `bench`."""
    if not shutil.which(EVENKEEL):
        raise Trouble(f"{EVENKEEL} is not there: cargo build --release")
    say(f"bench: the wire on core {SENDER_CPU}, beside gen and iperf3")
    results, stamps = _rates(lab, options, say)
    for name, result in results.items():
        result["note"] = NOTES[name]
        result["pps"] = median_of(result, "pps")
    pacing = _pacing(lab, options, say)
    quick = None if options.quick else _quick_run(lab, say)
    return {
        "title": "bench", "kind": "bench", "generator": None, "contenders": results, "stamps": stamps, "pacing": pacing, "quick": quick,
        "ratios": [judged(ours, theirs, "units", at_least, ratio(results, ours, theirs, "pps")) for ours, theirs, at_least in WANTED], "values": _values(stamps, pacing, quick),
        "arrangement": f"`evenkeel bench {' '.join(WIRE)} --cpus {SENDER_CPU}`, in namespaces of its own, in turn with peers that send from "
        f"core {SENDER_CPU}, one direction, 64 bytes with FCS. Its pace is measured on cores {SENDER_CPU} (sender) and {READER_CPU} (the rest)",
    }


def _rates(lab, options, say):
    """All contenders in interleaved rounds, and the stamps as each run of the bench measured them."""
    results = {name: {"rounds": [], "trouble": None} for name in NOTES}
    if not shutil.which("iperf3"):
        for name in IPERFS:
            results[name]["trouble"] = "iperf3 is not there"
    stamps = []

    def bench():
        run, steal = _quiet(lambda: _bench(lab, [*WIRE, "--cpus", str(SENDER_CPU)]))
        stamps.append(run["setup"]["stamps"])
        return {name: {**({"pps": pps} if pps else {}), "steal_percent": steal} for name, pps in _wire_rates(run).items()}

    def peer(name):
        generator, server_cpu = IPERFS.get(name, (GEN_UDP, None))
        figures = trial(lab, generator, None, options.seconds, "drop") if server_cpu is None else _with_server(lab, generator, server_cpu, options)
        return {name: {**figures, "pps": figures["stack_pps"]}}

    steps = [((CEILING, UNPACED, FOUND), bench)]
    steps += [((name,), lambda name=name: peer(name)) for name in (GEN, *IPERFS)]
    for number in range(options.rounds):
        for names, measure in steps:
            if any(results[name]["trouble"] for name in names):
                continue
            try:
                found = measure()
            except Trouble as trouble:
                for name in names:
                    results[name]["trouble"] = str(trouble)
                say(f"  {names[0]}: {trouble}")
                continue
            for name, figures in found.items():
                results[name]["rounds"].append(figures)
                shown = f"{figures['pps'] / 1e6:.3f} Mpps" if "pps" in figures else "none"
                say(f"  round {number + 1} {name}: {shown}, steal {figures['steal_percent']} %")
    return results, stamps


def _wire_rates(run):
    """What a run on the wire has found, in units per second; only the ceiling is there in every case."""
    point = run["modes"][0]["points"][0]
    unpaced = [t["received_pps"] for t in point["trials"] if t["intended_pps"] is None and t["invalid"] is None]
    found = ((point["throughput"] or {}).get("results") or [{}])[0]
    if not point["ceiling_pps"]:
        raise Trouble(f"the tester found no ceiling: {' '.join([run['conclusion'], *run['notes']])}")
    return {CEILING: point["ceiling_pps"], UNPACED: unpaced[0] if unpaced else None, FOUND: found.get("lower_pps")}


def _with_server(lab, generator, server_cpu, options):
    """One trial of iperf3 with a server in the receiver's namespace."""
    gen, rx = lab.names
    server = None
    try:
        sh("ip", "-n", gen, "addr", "add", f"{CLIENT}/30", "dev", SENDER)
        sh("ip", "-n", rx, "addr", "add", f"{SERVER}/30", "dev", RECEIVER)
        server = lab.start("iperf3 server", ["iperf3", "-s", "-B", SERVER], "rx", server_cpu)
        if not wait_for(lambda: _listens(lab) or not server.running(), 8.0) or not server.running():
            raise Trouble(f"iperf3's server did not start:\n{server.text()[-1500:]}")
        return trial(lab, generator, None, options.seconds, generator.receive)
    finally:
        if server:
            lab.forget(server)
        for name, device in ((gen, SENDER), (rx, RECEIVER)):
            sh("ip", "-n", name, "addr", "flush", "dev", device, check=False)


def _listens(lab):
    """Whether something listens on iperf3's port in the receiver's namespace."""
    with open(f"/proc/{lab.anchors['rx'].pid}/net/tcp") as file:
        return any(fields[1].endswith(f":{PORT:04X}") and fields[3] == "0A" for fields in map(str.split, file))


def _bench(lab, flags, begun=None, timeout=RUN_TIMEOUT):
    """Runs `evenkeel bench` outside of the lab, since it builds its own, and reads its run file. `begun`: a run to go on with."""
    folder = tempfile.mkdtemp(prefix="bench-", dir=lab.scratch)
    path = os.path.join(folder, "run.json")
    if begun:
        with open(path, "w") as file:
            json.dump(begun, file)
    argv = [EVENKEEL, "bench", *flags, "--resume" if begun else "--save", path, "--json"]
    program = Program("evenkeel bench", argv, folder)
    lab.programs.append(program)
    try:
        ended = wait_for(lambda: not program.running(), timeout, 0.05)
        if not ended:
            raise Trouble(f"evenkeel bench {' '.join(flags)}: not done after {timeout:.0f} s:\n{program.text()[-1500:]}")
        # A finding, such as "tester-limited" on the wire, is an answer, too.
        if program.process.returncode not in (0, 1):
            raise Trouble(f"evenkeel bench {' '.join(flags)}: exit code {program.process.returncode}: {program.text()[-1500:]}")
        with open(path) as file:
            return json.load(file)
    finally:
        program.stop(20.0)  # it takes its namespaces away first
        lab.forget(program)


def _quiet(measure):
    """The result of `measure`, measured again while the hypervisor stole time, and the stolen share in percent."""
    def once():
        before, result = cpu_times(), measure()
        return {"result": result, "steal_percent": round(usage(before, cpu_times())[None][1], 2)}

    figures = undisturbed(once)
    return figures["result"], figures["steal_percent"]


def _pacing(lab, options, say):
    """Each rate in interleaved rounds: every trial that was made at it, those that the bench itself threw away among them."""
    found = {"rates": {str(rate): {"trials": [], "steal_percent": []} for rate in RATES}, "trouble": None}
    try:
        # No flag fixes a rate. A run that is gone on with keeps its ceiling, and on the wire its search begins and ends there.
        begun = _bench(lab, [*WIRE, "--duration", "1", "--cpus", f"{SENDER_CPU},{READER_CPU}"])
        found["ceiling_pps"] = begun["modes"][0]["points"][0]["ceiling_pps"]
        for number in range(min(3, options.rounds)):
            for rate in RATES:
                run, steal = _quiet(lambda rate=rate: _bench(lab, [], _with_ceiling(begun, rate)))
                trials = _trials_at(run, rate)
                found["rates"][str(rate)]["trials"] += trials
                found["rates"][str(rate)]["steal_percent"].append(steal)
                worst = max((abs(t["error"]) for t in trials if t["error"] is not None), default=math.nan)
                say(f"  round {number + 1} pace of {rate}/s: {worst:.3%} off at most in {len(trials)} trials, steal {steal} %")
    except Trouble as trouble:
        found["trouble"] = str(trouble)
        say(f"  pace: {trouble}")
    return found


def _with_ceiling(run, rate):
    """The same run as if it had just found this ceiling."""
    begun = json.loads(json.dumps(run))
    mode = begun["modes"][0]
    point = mode["points"][0]
    point.update(ceiling_pps=float(rate), throughput=None, trials=[])
    begun.update(done=[{"mode": mode["key"], "frame": point["frame"], "what": "ceiling"}], begun=None, remarks=[], notes=[], ended=None)
    return begun


def _trials_at(run, rate):
    """What the sender did in the trials at this rate; others, below it, are made only where the wire lost units."""
    trials = run["modes"][0]["points"][0]["trials"]
    at = [t for t in trials if t["intended_pps"] is not None and abs(t["intended_pps"] / rate - 1) < 0.01]
    return [
        {"error": t["pacing"]["error"], "held_up": t["pacing"].get("stalled", 0.0), "latest_ns": t["pacing"]["max_lag_ns"],
         "seconds": t["seconds"], "void": t["invalid"]} for t in at]


def _quick_run(lab, say):
    """How long the quick preset takes with all its defaults, and what it found with 64 bytes."""
    try:
        start = time.monotonic()
        run = _bench(lab, ["--preset", "quick"], timeout=900.0)
        seconds = time.monotonic() - start
    except Trouble as trouble:
        say(f"  quick preset: {trouble}")
        return {"trouble": str(trouble)}
    say(f"  quick preset: {seconds:.0f} s")
    # The frames are the same for every box, 64 bytes first.
    at_64 = {mode["key"]: mode["points"][0]["throughput"] for mode in run["modes"]}
    lower = {key: found["results"][0]["lower_pps"] if found and found["results"] else None for key, found in at_64.items()}
    return {"trouble": None, "seconds": seconds, "status": run["status"]["status"], "throughput_64_pps": lower}


def _values(stamps, pacing, quick):
    """The figures that have a limit, and the cost of a stamp, which has none."""
    items = []
    for rate, result in pacing["rates"].items():
        errors = [abs(t["error"]) for t in result["trials"] if t["error"] is not None]
        items.append(_value(f"largest pacing error at {int(rate):,} units/s", "%", 100 * max(errors) if errors else None, ERROR_PERCENT))
    items.append(_value("resolution of a stamp", "ns", max((s["resolution_ns"] for s in stamps), default=None), RESOLUTION_NS))
    items.append(_value("cost of a stamp", "ns", statistics.median(s["cost_ns"] for s in stamps) if stamps else None, None))
    whole = quick and quick.get("status") == "complete"
    items.append(_value("quick preset, 7 sizes, 3 boxes", "s", quick["seconds"] if whole else None, QUICK_S))
    return items


def _value(what, unit, figure, below):
    return {
        "what": what, "unit": unit, "figure": figure, "below": below,
        "met": None if figure is None or below is None else figure < below,
    }

"""Table `bench`: how fast `evenkeel bench` sends and receives by itself, beside gen and iperf3.

The bench builds its own lab; the peers meet in the lab of the other tables, on the same core. Its own rate is read from its run file."""

import json
import math
import os
import shutil
import tempfile

from .contenders import Generator
from .lab import READER_CPU, RECEIVER, SENDER, SENDER_CPU, Program, Trouble, cpu_times, sh, usage, wait_for
from .peers import EVENKEEL
from .trial import interleaved, judged, median_of, ratio, trial, undisturbed

CEILING = "evenkeel bench, wire's ceiling"
GEN, IPERF, IPERF_ONE = "evenkeel gen --udp", "iperf3", "iperf3, server on the same core"
WANTED = [(CEILING, GEN, 0.8), (CEILING, IPERF, 10), (CEILING, IPERF_ONE, 10)]

WIRE = ["--dut", "wire", "--one-way", "--sizes", "64", "--tests", "throughput", "--preset", "quick"]
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
    GEN: GEN_UDP.note, **{name: generator.note for name, (generator, _) in IPERFS.items()},
}


def table(lab, _generator, options, say):
    """Table `bench`."""
    arrangement = (
        f"`evenkeel bench {' '.join(WIRE)} --cpus {SENDER_CPU}`, in namespaces of its own, in turn with peers that send from core {SENDER_CPU}, "
        "one direction, 64 bytes with FCS")
    say(f"bench: {arrangement}")
    results = {name: {"rounds": [], "trouble": None, "note": note} for name, note in NOTES.items()}
    for name, program in ((CEILING, EVENKEEL), (GEN, EVENKEEL), (IPERF, "iperf3"), (IPERF_ONE, "iperf3")):
        if not shutil.which(program):
            results[name]["trouble"] = f"{program} is not there"

    def measure(name):
        if name == CEILING:
            return undisturbed(lambda: _ceiling(lab))
        found = _with_server(lab, *IPERFS[name], options) if name in IPERFS else trial(lab, GEN_UDP, None, options.seconds, "drop")
        return {**found, "pps": found["stack_pps"]}

    interleaved(results, options.rounds, measure, lambda figures: f"{figures['pps'] / 1e6:.3f} Mpps", say)
    for result in results.values():
        result["pps"] = median_of(result, "pps")
    return {
        "title": "bench", "kind": "rates", "generator": None, "arrangement": arrangement, "contenders": results,
        "ratios": [judged(ours, theirs, "units", at_least, ratio(results, ours, theirs, "pps")) for ours, theirs, at_least in WANTED],
    }


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


def _ceiling(lab):
    """The tester's ceiling on the wire, from the file of a run. `evenkeel bench` runs outside of the lab, since it builds its own."""
    folder = tempfile.mkdtemp(prefix="bench-", dir=lab.scratch)
    path = os.path.join(folder, "run.json")
    program = Program("evenkeel bench", [EVENKEEL, "bench", *WIRE, "--cpus", str(SENDER_CPU), "--save", path, "--json"], folder)
    lab.programs.append(program)
    ticks = cpu_times()
    try:
        if not wait_for(lambda: not program.running(), RUN_TIMEOUT, 0.05):
            raise Trouble(f"evenkeel bench: not done after {RUN_TIMEOUT:.0f} s:\n{program.text()[-1500:]}")
        # A finding, such as "tester-limited" on the wire, is an answer, too.
        if program.process.returncode not in (0, 1):
            raise Trouble(f"evenkeel bench: exit code {program.process.returncode}: {program.text()[-1500:]}")
        with open(path) as file:
            run = json.load(file)
    finally:
        program.stop(20.0)  # it takes its namespaces away first
        lab.forget(program)
    found = run["modes"][0]["points"][0]["ceiling_pps"]
    if not found:
        raise Trouble(f"the tester found no ceiling: {' '.join([run['conclusion'], *run['notes']])}")
    return {"pps": found, "steal_percent": round(usage(ticks, cpu_times())[None][1], 2)}

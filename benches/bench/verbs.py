"""Tables of what evenkeel measures by itself, box beside peer, in namespaces of its own: `stateful` by `evenkeel bench`, `link` by `evenkeel link bench`."""

import json
import subprocess
import tempfile

from .lab import Trouble
from .peers import EVENKEEL
from .trial import interleaved, judged, median_of, ratio, spread

RUN_TIMEOUT = 300  # seconds
ATTEMPTS = 3  # a verb whose trials were void gives no figure
BENCH = ["bench", "--sizes", "64", "--flows", "100000", "--one-way", "--tests", "throughput", "--duration", "1s", "--dut"]
# (box, its peer in the kernel, what that is, the ratio that is wanted)
BOXES = [
    ("route-stateful", "stateful", "nftables and conntrack", 3.5),
    ("route-nat", "nat", "nftables, masquerading", 4),
    ("route-rules", "stateless", "25 rules of nftables", 4),
]
LINK_BENCH = ["link", "bench", "--quick"]
TRIPS, TRANSFER = "64 bytes", "transfer"
# Transports in the JSON, and their names in tables.
NAMES = {"packet": "AF_PACKET", "xdp": "AF_XDP", "udp": "UDP", "tcp": "TCP", "link-sockets": "link by sockets", "broker": "link run by brokers"}
# (what, ours, theirs, the ratio of rates that is wanted)
LINKS = [(TRIPS, "link", "AF_PACKET", 1.1), (TRIPS, "link", "TCP", 2.5), (TRANSFER, "link", "TCP", 1.2)]


def _run(words, figures):
    """The figures in the JSON that a verb prints. It judges by itself what the hypervisor took."""
    with tempfile.TemporaryDirectory(prefix="ekb-verbs-") as folder:
        for attempt in range(1, ATTEMPTS + 1):
            ran = subprocess.run([EVENKEEL, *words, "--json"], cwd=folder, capture_output=True, text=True, timeout=RUN_TIMEOUT)
            if not ran.stdout:
                raise Trouble(f"evenkeel {' '.join(words)}: {ran.stderr[-1000:]}")
            found = figures(json.loads(ran.stdout))
            if None not in found.values():
                return {**found, "steal_percent": 0.0, "attempts": attempt}
    raise Trouble(f"evenkeel {' '.join(words)}: no figure in {ATTEMPTS} attempts: {ran.stderr[-1000:]}")


def _key(document, name, before):
    """A value by its key, or by the key that builds before the first release wrote."""
    return document[name] if name in document else document[before]


def _throughput(run):
    """The throughput of the box, in frames per second."""
    points = next(mode["points"] for mode in run["modes"] if mode["key"] != "wire")
    throughput = points[0]["throughput"]
    return {"pps": throughput and _key(throughput, "results", "found")[0]["lower_pps"]}


def _transport(measured):
    key = _key(measured, "transport", "by")
    return NAMES.get(key, key)


def _links(run):
    """Round trips of 64 bytes per second, receivers active, and bytes per second of a transfer with MTU 1500, without offloads and losses."""
    found = {}
    for ping in run["pings"]:
        if ping["bytes"] == 64 and ping["receive"] != "sleeping":
            # Both kinds of active receivers: the faster one counts for each.
            key = (TRIPS, _transport(ping))
            found[key] = max(found.get(key, 0), 1e9 / ping["p50_ns"])
    for one in run["transfers"]:
        if one["conditions"] == {"mtu": 1500, "offloads": False, "tcp_rmem": None, "lost_per_million": None}:
            found[TRANSFER, _transport(one)] = one["bytes"] / one["seconds"]
    return found


def row(name, what=None):
    """For `benches/pairs`: a measurement, and the name of its rate."""
    if what is None:
        words, figures = [*BENCH, name], lambda run: {"rate": _throughput(run)["pps"]}
    else:
        words, figures = LINK_BENCH, lambda run: {"rate": _links(run).get((what, name))}
    return lambda _lab, _seconds: _run(words, figures), "rate"


def stateful(_lab, _generator, options, say):
    """Table `stateful`."""
    arrangement = f"`evenkeel {' '.join(BENCH)} BOX`: 100,000 established UDP flows, the highest load with a loss of at most 0.1 %"
    say(f"stateful: {arrangement}")
    notes = {name: note for box, peer, how, _ in BOXES for name, note in ((peer, how), (box, "evenkeel route"))}
    results = {name: {"rounds": [], "trouble": None, "note": note} for name, note in notes.items()}
    interleaved(results, options.rounds, lambda name: _run([*BENCH, name], _throughput), lambda f: f"{f['pps'] / 1e6:.3f} Mpps", say)
    for result in results.values():
        result["pps"] = median_of(result, "pps")
    return {
        "title": "stateful", "kind": "rates", "generator": None, "arrangement": arrangement, "contenders": results,
        "ratios": [judged(box, peer, "frames", at_least, ratio(results, box, peer, "pps")) for box, peer, _, at_least in BOXES],
    }


def link(_lab, _generator, options, say):
    """Table `link`."""
    arrangement = f"`evenkeel {' '.join(LINK_BENCH)}`: two nodes and a veth pair; a message there and back, both ends active; 90 MB with MTU 1500, without offloads"
    say(f"link: {arrangement}")
    runs = {"link": {"rounds": [], "trouble": None}}
    interleaved(runs, options.rounds, lambda _: _run(LINK_BENCH, _links), lambda f: f"{f[TRIPS, 'link'] / 1e3:.0f} thousand round trips/s", say)
    if runs["link"]["trouble"]:
        raise Trouble(runs["link"]["trouble"])
    rounds, rows = runs["link"]["rounds"], {}
    for key in [key for key in rounds[0] if isinstance(key, tuple)]:
        rows[f"{key[1]}, {key[0]}"] = spread([figures[key] for figures in rounds])
    pairs = [
        judged(f"{ours}, {what}", f"{theirs}, {what}", "rate", at_least, spread([f[what, ours] / f[what, theirs] for f in rounds]))
        for what, ours, theirs, at_least in LINKS
    ]
    return {"title": "link", "kind": "links", "generator": None, "arrangement": arrangement, "rates": rows, "ratios": pairs}

"""The tables in Markdown, and around them the whole of BENCHMARKS.md."""

import pathlib
import statistics

from .contenders import BUFFER_MIB, RING_FRAME_BYTES
from .reasons import REASONS

# Measured by hand, from two commits' programs.
CHAIN = pathlib.Path(__file__).parents[1] / "chain.md"
MARK = {True: "yes", False: "**no**", None: ""}


def _mpps(figure):
    if not figure:
        return ""
    return f"{figure['median'] / 1e6:.2f} ({figure['min'] / 1e6:.2f}-{figure['max'] / 1e6:.2f})"


def _short(trouble):
    """The first two lines that say something, in one."""
    return " ".join([line.strip() for line in trouble.splitlines() if line.strip()][:2]).replace("|", "\\|")


def _times(figure):
    return f"{figure['median']:.2f} ({figure['min']:.2f}-{figure['max']:.2f})" if figure else "not measured"


def _rows(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _busy(result):
    """Median load of each core over the rounds."""
    shares = [figures["busy_percent"] for figures in result["rounds"]]
    if not shares:
        return ""
    return " / ".join(str(round(sorted(share[cpu] for share in shares)[len(shares) // 2])) for cpu in sorted(shares[0], key=int))


def _reader_time(result):
    """Median processor time of the reader itself, as a share of its core."""
    shares = [figures["reader_cpu_percent"] for figures in result["rounds"] if "reader_cpu_percent" in figures]
    return f"{statistics.median(shares):.0f}" if shares else ""


def _packet_table(table):
    readers = table["generator"] is not None
    apart = table["title"] == "apart"
    head = ["", "received, Mpps", "through the interface, Mpps"] if readers else ["", "Mpps"]
    head += ["offered, Mpps", "kept"] if apart else []
    head += ["load per core, %"] + (["reader's own, %"] if readers else []) + ["how"]
    rows = []
    for name, result in table["contenders"].items():
        if result["trouble"]:
            rows.append([name, "not measured"] + [""] * (len(head) - 3) + [_short(result["trouble"])])
            continue
        row = [name]
        row += [_mpps(result["reader_pps"])] if readers else []
        row += [_mpps(result["stack_pps"])]
        if apart:
            row += [_mpps(result["offered_pps"]), f"{result['kept_share']['median']:.3f}" if result["kept_share"] else ""]
        chosen = sorted({figures["chosen"].split(":")[0] for figures in result["rounds"] if "chosen" in figures})
        note = result["note"] + (f"; chose {', '.join(chosen)}" if chosen else "")
        rows.append([*row, _busy(result), *([_reader_time(result)] if readers else []), note])
    text = _rows(head, rows)
    return "\n\n".join(filter(None, [text, _ratios(table)]))


def _ratios(table):
    if not table["ratios"]:
        return ""
    judged = [
        [f"{item['ours']} / {item['theirs']}", item["metric"].replace("_pps", ""), _times(item["ratio"]),
         f"≥ {item['at_least']}" if item["at_least"] else "", MARK[item["met"]]]
        for item in table["ratios"]
    ]
    return _rows(["ratio, per round", "of", "median (spread)", "wanted", "met"], judged)


def _bench_table(table):
    """Rates of the tester itself beside its peers, its pace, and what has a limit."""
    rates = [
        [name, "not measured" if result["trouble"] else _mpps(result["pps"]) or "none", _short(result["trouble"] or result["note"])]
        for name, result in table["contenders"].items()
    ]
    pace = []
    for rate, result in table["pacing"]["rates"].items():
        trials = [trial for trial in result["trials"] if trial["error"] is not None]
        if not trials:
            continue
        errors = [100 * abs(trial["error"]) for trial in trials]
        pace.append([
            f"{int(rate):,}", f"{statistics.median(errors):.3f}", f"{max(errors):.3f}", f"{100 * max(t['held_up'] for t in trials):.2f}",
            f"{max(t['latest_ns'] for t in trials) / 1e3:.0f}", str(len(trials)), str(sum(t["void"] is not None for t in trials))])
    head = ["units/s", "error, median, %", "largest, %", "time held up, largest, %", "behind schedule, longest, us", "trials", "void among them"]
    limits = [
        [item["what"], f"{_sensible(item['figure'])} {item['unit']}" if item["figure"] is not None else "not measured",
         f"< {item['below']} {item['unit']}" if item["below"] else "", MARK[item["met"]]]
        for item in table["values"]
    ]
    troubles = [f"{what}: {_short(part['trouble'])}" for what, part in (("Pace", table["pacing"]), ("Quick preset", table["quick"])) if part and part["trouble"]]
    parts = [
        _rows(["", "Mpps", "how"], rates), _ratios(table), _rows(head, pace) if pace else "", _rows(["", "", "wanted", "met"], limits), *troubles]
    return "\n\n".join(filter(None, parts))


def _rates_table(table):
    """Rates that interfaces count, and the ratios between them."""
    rows = [
        [name, "not measured" if result["trouble"] else _mpps(result["pps"]), _short(result["trouble"] or result["note"])]
        for name, result in table["contenders"].items()
    ]
    return "\n\n".join(filter(None, [_rows(["", "Mpps", "how"], rows), _ratios(table)]))


def _sensible(figure):
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2g}" if figure < 1 else f"{figure:.1f}"


def _cost_table(table):
    """Throughput of a box with a watcher, beside the same box without."""
    rows = []
    for name, result in table["contenders"].items():
        figures = result["rounds"]
        if result["trouble"] or not figures:
            rows.append([name, "not measured", "", "", "", "", "", _short(result["trouble"] or "no round")])
            continue
        mpps = [f"{statistics.median(f[key] for f in figures) / 1e6:.2f}" for key in ("without_pps", "with_pps")]
        own = statistics.median(f["watcher_cpu_percent"] for f in figures)
        work = [f["work_ratio"] for f in figures]
        inside = [f["in_kernel_percent"] for f in figures if f["in_kernel_percent"] is not None]
        programs = f"{statistics.median(inside):.2f}" if inside and any(inside) else ""
        # Runs of the earlier arrangement have not got it.
        added = [f["added_ns"] for f in figures if "added_ns" in f]
        ns = f"{statistics.median(added):.1f} ({min(added):.1f}-{max(added):.1f})" if added else ""
        rows.append([name, *mpps, ns, f"{statistics.median(work):.3f} ({min(work):.3f}-{max(work):.3f})", f"{own:.1f}", programs, result["note"]])
    text = _rows(["watcher, box", "without, Mpps", "with, Mpps", "added per frame, ns", "per second of work", "watcher's process, % of a core", "its kernel programs, % of a core", "how"], rows)
    judged = [
        [item["ours"], item["theirs"], f"{item['ratio']['median']:.3f} ({item['ratio']['min']:.3f}-{item['ratio']['max']:.3f})",
         f"≥ {item['at_least']}" if item["at_least"] else "", MARK[item["met"]]]
        for item in table["ratios"] if item["ratio"]
    ]
    drift = [abs(f["unwatched_ratio"] - 1) for result in table["contenders"].values() for f in result["rounds"]]
    if drift:
        text += "\n\n" + _rows(["throughput with", "to that with", "median (spread)", "wanted", "met"], judged)
        text += (
            f"\n\nTwo windows with nothing watching, one before and one after, differ by {statistics.median(drift):.1%} (median) to {max(drift):.1%}: "
            "what is smaller than that in a single round says nothing.")
    return text


def _buffered(table):
    """How much of the readers' shares may be what their buffers held at the end."""
    offered = [row["offered_frames"]["median"] for row in table["contenders"].values() if row.get("offered_frames")]
    if not offered:
        return ""
    held = BUFFER_MIB * 2**20 / RING_FRAME_BYTES
    return (
        f"A ring of {BUFFER_MIB} MiB holds about {held:,.0f} of these frames, {held / statistics.median(offered):.1%} of what was offered in a "
        "round: so much of a share may be buffer rather than speed. It is the same for every ring and the tap, which brings a ratio between "
        "two shares nearer to 1. AF_XDP has 8192 frames.")


def _value_table(table):
    value, unit = table["value"], table["unit"]
    if "median" in value:
        rows = [["", f"{value['median']:.1f} ({value['min']:.1f}-{value['max']:.1f})"]]
    else:
        rows = [[name, f"{share:.2f}"] for name, share in value.items()]
    return _rows(["", unit], rows) + f"\n\nWanted: below {table['below']} {unit}; met: {MARK[table['met']]}"


SHOWN = {"cost": _cost_table, "bench": _bench_table, "rates": _rates_table}


def markdown(result):
    """The whole report."""
    about = result["conditions"]
    there = {name: version for name, version in about["versions"].items() if version != "absent"}
    versions = ", ".join(f"{name} {version}" for name, version in there.items())
    if any(table.get("earlier") for table in result["tables"].values()):
        versions += "; those of earlier runs are in benches/results"
    text = [
        f"Measured {about['date']} with `{about['command']}` at {about['commit']}: {about['rounds']} interleaved rounds of "
        f"{about['seconds']} s, medians and (lowest-highest); windows with more than 1 % stolen time measured again.",
        f"Machine: {about['cpu']}, {about['cores']} cores{', virtual' if about['virtual'] else ''}, {about['memory_gib']} GiB, "
        f"Linux {about['kernel']}. Link: {about['link']}. Frames: 60 bytes. Generator of the readers' tables: {about['generator']}.",
        f"Versions: {versions}.",
    ]
    if about["warning"]:
        text.append(f"**Not to be trusted:** {about['warning']}.")
    if result.get("ceiling"):
        parts = [f"{name} {_mpps(figure)} Mpps" for name, figure in result["ceiling"].items()]
        text.append(f"The generator's own ceiling, into a bare XDP_DROP: {', '.join(parts)}.")
    for table in result["tables"].values():
        if table.get("trouble"):
            text.append(f"### {table['title']}\n\nNot measured: {table['trouble']}")
            continue
        shown = _value_table if "value" in table else SHOWN.get(table.get("kind"), _packet_table)
        body = shown(table)
        earlier = f" Measured in an earlier run: {table['earlier']}." if table.get("earlier") else ""
        text.append(f"### {table['title']}\n\n{table['arrangement'][0].upper()}{table['arrangement'][1:]}.{earlier}\n\n{body}")
        text += _warnings(result, table)
        if table["title"] == "apart":
            text += [_buffered(table)]
    return "\n\n".join(filter(None, text))


INTRODUCTION = """# Benchmarks

How fast `evenkeel` sends, captures, filters and plans, beside programs that do the same where there are any: named peers, in the same run on the
same machine. Tables that were measured earlier than the others say when. This file is written by the script that measures; nothing in it was typed in.

## How to repeat it

    make build && make -C benches/yardsticks && benches/fetch-xdp-tools
    sudo benches/run --no-build --write BENCHMARKS.md

`make bench` installs what is missing and measures the same, but prints the tables rather than writing this file. About half an hour; two
cores that do nothing else, root, no traffic outside namespaces of its own. `--only TABLE,...` measures some tables, `--keep FILE` takes the others
from a saved run; the last time it was `{command}`. What each peer is started with is in
`benches/bench/contenders.py`; the yardsticks, bare loops in C as fast as we could make them, are in `benches/yardsticks/`.

## How to read it

- Rates are millions of 60-byte frames (64 with FCS) per second: the median of the rounds, then the lowest and the highest.
- **Ratios count, figures do not.** The contenders take turns within each round (A B C A B C ...); a ratio is made within each
  round, and the median of those is what is judged.
- *inline*: generator and receive work share core 0, as a veth pair does it by itself. Receiving slows the generator down, so that little is lost;
  the rate says what sending and receiving cost together. The reader has core 1; "reader's own" is its processor time, as a share of that core.
- *apart*: the generator has core 0 alone; the receive work, in a NAPI kthread, and the reader share core 1. Nothing throttles the load: real
  overload, in which a reader can starve while the kernel receives what nobody will read. On some machines a full veth ring makes its reader slower (seen:
  by a quarter): overload is worse here than behind a network card, which drops in hardware.
- Inline figures compare with inline figures only, apart with apart.
- *Of* in a table of ratios is what is compared: `stack` frames that crossed the interface, `reader` those that the reader counted, `frames` those that
  met their end or came back, `units` those that arrived.
- "Received" is the reader's own final count as a share of all that was offered, times the rate that was offered in the window, which
  the interfaces' counters say. Rings and the tap have {buffer} MiB each, peers' too.
- Rows that say "counts only" walk whole frames and write nothing; those with `-w /dev/null` format a file that nobody keeps. tcpdump, dumpcap and
  xdpdump have no way to only count what is live: compare them with our rows of the same kind.
- *cost*: the throughput of a box with a watcher beside it, as a share of the mean of two windows without, one right before and one right after.
  Generator, box and watcher share core 0, so that the load throttles itself and all that the watcher does counts: its own processor time and what it does to
  each frame. The generator's time is part of every frame's: "added per frame" is what the watcher adds, in nanoseconds, and has no such part.
  "Per second of work" is the same ratio made of frames per second of processor time that sender, box and watcher used: it does not see what else ran.
  The empty program on kfree_skb is the least that a look at every drop costs.
  "Its kernel programs" is the time that the kernel measures inside the watcher's BPF programs on all cores (kernel.bpf_stats_enabled), in a window of its own.
- *drop*, *prefixes*, *strays*, *unasked*, *pass*, *between*, *cookies*: what stands at the receiving end, one after the other, under one flood whose sources are drawn anew for each
  frame. Counted are the frames that met what was to become of them: dropped (what ends in XDP must not reach the stack), routed on, arrived behind
  the gateway, answered. xdp-filter appears as it comes and as its fastest program, which cannot look at addresses.
- *bench*: what `evenkeel bench` reaches without a box, sender and receiving ends on one core, in turn with peers that send from that core. Its rates are
  those of its own run file: units that arrived, numbered and partly stamped. "Unpaced" is the one to hold beside `gen`, which keeps no pace either; the
  ceiling, which is judged, is the highest paced load of which it loses no more than 0.1 %, found to within 5 %. iperf3 is counted at the interface,
  whether its server reads or not. A pacing error is the achieved rate over the wanted one, less one, over the time in which the sender had its core;
  trials that the bench threw away are counted in. The time of the quick preset is a single run.

## Its limits

{machine} The link is a veth pair, not a network card: no DMA, no interrupts, no wire. Runs of the same benchmark differ by
about 20 %, so nothing is compared across runs, and a ratio whose spread includes 1 says that two are alike. Ratios on other hardware will differ."""


def document(result, command):
    """The whole of BENCHMARKS.md. `command` repeats the run."""
    virtual = result["conditions"]["virtual"]
    machine = "The machine is virtual: other tenants share its processors and caches." if virtual else "It is one machine."
    head = INTRODUCTION.format(command=command, buffer=BUFFER_MIB, machine=machine)
    text = [head, "## Results", markdown(result), CHAIN.read_text().strip(), _missed(result)]
    return "\n\n".join(text) + "\n"


def _missed(result):
    """What was wanted and not reached, with the reason as far as it is known."""
    lines, unmeasured = [], []
    for title, table in result["tables"].items():
        if table.get("trouble"):
            unmeasured.append(f"- `{title}`: {_short(table['trouble'])}")
        elif table.get("met") is False:
            value = table["value"]
            worst = value["median"] if "median" in value else max(value.values())
            lines.append(f"- `{title}`: {worst:.2f} {table['unit']}, wanted below {table['below']}. {_reason(title)}")
        for item in table.get("values", []):
            if item["figure"] is None and item["below"]:
                unmeasured.append(f"- `{title}`: {item['what']}, wanted below {item['below']} {item['unit']}")
            elif item["met"] is False:
                lines.append(
                    f"- `{title}`: {item['what']} is {_sensible(item['figure'])} {item['unit']}, wanted below {item['below']}. "
                    f"{_reason(title, item['what'])}")
        for item in table.get("ratios", []):
            pair = f"{item['ours']} / {item['theirs']}"
            if item["at_least"] and item["ratio"] is None:
                unmeasured.append(f"- `{title}`: {pair}, wanted ≥ {item['at_least']}")
            elif item["met"] is False:
                lines.append(_missed_ratio(title, table, item, pair))
    text = "## What is not met, and why\n\n" + ("\n".join(lines) or "Everything that was wanted and measured is met.")
    if unmeasured:
        text += "\n\nWanted, but not measured in this run:\n\n" + "\n".join(unmeasured)
    return text


def _missed_ratio(title, table, item, pair):
    line = f"- `{title}`: {pair} is {_times(item['ratio'])}, wanted ≥ {item['at_least']}. {_reason(title, item['ours'], item['theirs'])}"
    if item["ratio"]["max"] >= item["at_least"]:
        line += " The best round reached it: the gap is smaller than the spread between rounds."
    if table.get("generator"):
        ours, theirs = (_reader_time(table["contenders"][name]) for name in (item["ours"], item["theirs"]))
        if ours and theirs:
            line += f" The readers' own processor time: ours {ours} % of core 1, theirs {theirs} %."
    return line


def _reason(*where):
    return REASONS.get(where, "No reason is known.")


def _warnings(result, table):
    """Rows that the generator, not the reader, may have limited."""
    ceiling = (result.get("ceiling") or {}).get("apart" if table["title"] == "apart" else "inline")
    if not ceiling or not table.get("generator") or table["title"] == "apart":
        return []
    near = [name for name, row in table["contenders"].items() if row["stack_pps"] and row["stack_pps"]["median"] > 0.9 * ceiling["median"]]
    return [f"Limited by the generator rather than by the reader: {', '.join(near)}."] if near else []

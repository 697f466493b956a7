"""The tables in Markdown, and their places: between marks of a page in docs/benchmarks, and, of those that were chosen for it, as rows of
BENCHMARKS.md."""

import re
import statistics

from .contenders import BUFFER_MIB, RING_FRAME_BYTES
from .reasons import REASONS, UNKNOWN
from .verbs import TRANSFER

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


def _rates_table(table):
    """Rates that interfaces count, and the ratios between them."""
    rows = [
        [name, "not measured" if result["trouble"] else _mpps(result["pps"]), _short(result["trouble"] or result["note"])]
        for name, result in table["contenders"].items()
    ]
    return "\n\n".join(filter(None, [_rows(["", "Mpps", "how"], rows), _ratios(table)]))


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


def _links_table(table):
    """Round trips and transfers of `link bench`."""
    rows = [
        [name, *(["", _times({key: value * 8 / 1e9 for key, value in rate.items()})] if name.endswith(TRANSFER) else [_times(
            {"median": 1e6 / rate["median"], "min": 1e6 / rate["max"], "max": 1e6 / rate["min"]}), ""])]
        for name, rate in table["rates"].items()
    ]
    return "\n\n".join([_rows(["", "there and back, µs", "Gbit/s"], rows), _ratios(table)])


SHOWN = {"cost": _cost_table, "rates": _rates_table, "links": _links_table}


def _measured(about):
    """When, where and how often."""
    text = f"Measured {about['date']} at {about['commit']}, {about['rounds']} rounds of {about['seconds']} s, {about['cpu']}."
    return text + (f" Warning: {about['warning']}." if about.get("warning") else "")


def _section(result, table):
    """One table with its heading."""
    if table.get("trouble"):
        return f"## {table['title']}\n\nNot measured: {table['trouble']}"
    shown = _value_table if "value" in table else SHOWN.get(table.get("kind"), _packet_table)
    arrangement = table["arrangement"]
    text = [f"## {table['title']}\n\n{arrangement[0].upper()}{arrangement[1:]}.\n\n{_measured(result['conditions'])}", shown(table), *_warnings(result, table)]
    if table["title"] == "apart":
        text.append(_buffered(table))
    return "\n\n".join(filter(None, text))


def _about(result):
    """The machine, and what ran on it."""
    about = result["conditions"]
    there = {name: version for name, version in about["versions"].items() if version != "absent"}
    text = [
        f"The last run: {about['date']}, `{about['command']}` at {about['commit']}.",
        f"Machine: {about['cpu']}, {about['cores']} cores{', virtual' if about['virtual'] else ''}, {about['memory_gib']} GiB, "
        f"Linux {about['kernel']}. Link: {about['link']}. Frames: 60 bytes. Generator of the readers' tables: {about['generator']}.",
        f"Versions: {', '.join(f'{name} {version}' for name, version in there.items())}.",
    ]
    if result.get("ceiling"):
        parts = [f"{name} {_mpps(figure)} Mpps" for name, figure in result["ceiling"].items()]
        text.append(f"The generator's own ceiling, into a bare XDP_DROP: {', '.join(parts)}.")
    return "\n\n".join(text)


def markdown(result):
    """The whole report."""
    return "\n\n".join([_about(result), *(_section(result, table) for table in result["tables"].values()), "\n".join(_missed(result))])


def _put(text, mark, inside):
    """`text` with `inside` between the lines of a mark, or None where it has no such mark."""
    begins, ends = f"<!-- benches/run: {mark} -->", f"<!-- end of {mark} -->"
    before, found, rest = text.partition(begins)
    return f"{before}{begins}\n{inside}\n{ends}{rest.partition(ends)[2]}" if found else None


def write(root, result):
    """Puts the tables of a run into the pages of docs/benchmarks, and their rows into BENCHMARKS.md. Returns the files that changed, and the tables
    that no page has a place for."""
    pages = {page: page.read_text() for page in [root / "BENCHMARKS.md", *sorted((root / "docs/benchmarks").glob("*.md"))]}
    before, homeless = dict(pages), []
    sections = {name: _section(result, table) for name, table in result["tables"].items()}
    for mark, inside in [*sections.items(), ("about", _about(result))]:
        places = {page: text for page in pages if (text := _put(pages[page], mark, inside))}
        pages.update(places)
        homeless += [] if places else [mark]
    front = root / "BENCHMARKS.md"
    for name, table in result["tables"].items():
        for item in table.get("ratios", []):
            row = f"| `{name}` | {item['ours']} | {item['theirs']} |"
            cells = [_times(item["ratio"]), f"≥ {item['at_least']}" if item["at_least"] else "", MARK[item["met"]]]
            cells.append(f"{result['conditions']['date'][:10]}, {result['conditions']['commit']}")
            pages[front] = re.sub(
                f"^{re.escape(row)}.*$", lambda _: f"{row} {' | '.join(cells)} |", pages[front], flags=re.M)
    kept = pages[front].partition("<!-- benches/run: missed -->\n")[2].partition("<!-- end of missed -->")[0].splitlines()
    kept = [line for line in kept if not line.startswith(tuple(f"- `{name}`:" for name in result["tables"]))]
    pages[front] = _put(pages[front], "missed", "\n".join([*kept, *_missed(result)])) or pages[front]
    changed = [page for page in pages if pages[page] != before[page]]
    for page in changed:
        page.write_text(pages[page])
    return changed, homeless


def _missed(result):
    """A line for what was wanted and not reached in a table, for each reason that is known of it."""
    lines = {}

    def missed(title, text, *pair):
        lines.setdefault((title, REASONS.get((title, *pair), UNKNOWN)), []).append(text)

    for title, table in result["tables"].items():
        if table.get("trouble"):
            lines[title, ""] = [f"not measured: {_short(table['trouble'])}"]
        elif table.get("met") is False:
            value = table["value"]
            worst = value["median"] if "median" in value else max(value.values())
            missed(title, f"{worst:.2f} {table['unit']}, wanted below {table['below']}")
        for item in table.get("ratios", []):
            pair = item["ours"], item["theirs"]
            if item["at_least"] and item["ratio"] is None:
                missed(title, f"{' / '.join(pair)} was not measured", *pair)
            elif item["met"] is False:
                best = ", reached in the best round" if item["ratio"]["max"] >= item["at_least"] else ""
                missed(title, f"{' / '.join(pair)} {item['ratio']['median']:.2f}, wanted ≥ {item['at_least']}{best}", *pair)
    return [f"- `{title}`: {'; '.join(texts)}. {reason}".rstrip() for (title, reason), texts in lines.items()]


def _warnings(result, table):
    """Rows that the generator, not the reader, may have limited."""
    ceiling = (result.get("ceiling") or {}).get("apart" if table["title"] == "apart" else "inline")
    if not ceiling or not table.get("generator") or table["title"] == "apart":
        return []
    near = [name for name, row in table["contenders"].items() if row["stack_pps"] and row["stack_pps"]["median"] > 0.9 * ceiling["median"]]
    return [f"Limited by the generator rather than by the reader: {', '.join(near)}."] if near else []

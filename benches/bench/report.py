"""The tables in Markdown, ready for BENCHMARKS.md."""

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


def _packet_table(table):
    readers = table["generator"] is not None
    apart = table["title"] == "apart"
    head = ["", "received, Mpps", "through the interface, Mpps"] if readers else ["", "Mpps"]
    head += ["offered, Mpps", "kept"] if apart else []
    head += ["load per core, %", "how"]
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
        rows.append([*row, _busy(result), note])
    text = _rows(head, rows)
    if table["ratios"]:
        judged = [
            [f"{item['ours']} / {item['theirs']}", item["metric"].replace("_pps", ""), _times(item["ratio"]),
             f"≥ {item['at_least']}" if item["at_least"] else "", MARK[item["met"]]]
            for item in table["ratios"]
        ]
        text += "\n\n" + _rows(["ratio, per round", "of", "median (spread)", "wanted", "met"], judged)
    return text


def _value_table(table):
    value, unit = table["value"], table["unit"]
    if "median" in value:
        rows = [["", f"{value['median']:.1f} ({value['min']:.1f}-{value['max']:.1f})"]]
    else:
        rows = [[name, f"{share:.2f}"] for name, share in value.items()]
    return _rows(["", unit], rows) + f"\n\nWanted: below {table['below']} {unit}; met: {MARK[table['met']]}"


def markdown(result):
    """The whole report."""
    about = result["conditions"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
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
        body = _value_table(table) if "value" in table else _packet_table(table)
        text.append(f"### {table['title']}\n\n{table['arrangement'][0].upper()}{table['arrangement'][1:]}.\n\n{body}")
        text += _warnings(result, table)
    return "\n\n".join(text)


def _warnings(result, table):
    """Rows that the generator, not the reader, may have limited."""
    ceiling = (result.get("ceiling") or {}).get("apart" if table["title"] == "apart" else "inline")
    if not ceiling or not table.get("generator") or table["title"] == "apart":
        return []
    near = [name for name, row in table["contenders"].items() if row["stack_pps"] and row["stack_pps"]["median"] > 0.9 * ceiling["median"]]
    return [f"Limited by the generator rather than by the reader: {', '.join(near)}."] if near else []

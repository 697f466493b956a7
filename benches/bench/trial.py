"""One trial: a reader, a generator, a window watched from outside. Also the arithmetic of rounds: medians, spreads, ratios."""

import statistics
import time

from .lab import READER_CPU, SENDER_CPU, Trouble, cpu_times, usage, wait_for

STEAL_LIMIT = 1.0  # percent of all CPU time in the window; above it the window is measured again
ATTEMPTS = 4
CHOOSING = 20.0  # seconds that a reader may take to choose its backend under load
SETTLE = 0.3  # seconds of traffic before the window opens


def trial(lab, generator, reader, seconds, receive):
    """Measures one contender once. Rates in packets/s."""
    return undisturbed(lambda: _trial(lab, generator, reader, seconds, receive))


def undisturbed(measure):
    """The figures that `measure` gives, measured again while the hypervisor stole time."""
    for attempt in range(1, ATTEMPTS + 1):
        figures = measure()
        if figures["steal_percent"] <= STEAL_LIMIT:
            break
    figures["attempts"] = attempt
    return figures


def _trial(lab, generator, reader, seconds, receive):
    lab.arrange(receive)
    live = reader is not None and reader.live
    program = None
    try:
        if reader and not live:
            program = _start_reader(lab, reader, seconds)
        _pin_napi(lab, receive)
        before = lab.counters()
        time.sleep(0.02)
        if lab.counters()[0] != before[0]:
            raise Trouble("frames arrive before the generator was started: another sender is still running")
        lead = SETTLE + (CHOOSING if live else 0)
        sender = lab.start(generator.name, generator.argv(lab, lead + seconds + 0.5), "gen", SENDER_CPU)
        if not wait_for(lambda: lab.counters()[0] > before[0], 8.0, 0.01):
            raise Trouble(f"{generator.name} sent nothing:\n{sender.text()[-1500:]}")
        if live:
            program = lab.start(reader.name, reader.argv(lab, seconds), "rx", READER_CPU)
            if not wait_for(lambda: reader.chosen(program) or not program.running(), CHOOSING) or not program.running():
                raise Trouble(f"{reader.name} chose nothing:\n{program.text()[-1500:]}")
            time.sleep(reader.warm)
            _pin_napi(lab, receive)
        time.sleep(SETTLE)
        figures = _watch(lab, program, reader, seconds)
        if live:
            program.stop()
            figures["chosen"] = reader.chosen(program)[1]
            figures["reader_pps"] = reader.rate(program)
            figures["kept_share"] = figures["reader_pps"] / figures["offered_pps"]
        sender.stop()
        lab.forget(sender)
        if program and not live:
            time.sleep(0.25)  # lets the reader empty its ring
            after = lab.counters()
            program.stop()
            # The reader's own count is over the whole of the traffic; its share of all offered holds for the window too.
            offered = (after[0] - before[0]) + (after[1] - before[1])
            figures["offered_frames"] = offered
            figures["kept_share"] = reader.count(program) / offered
            if figures["kept_share"] > 1.001:
                raise Trouble(f"{reader.name} counts {figures['kept_share']:.3f} times the frames that were offered")
            figures["reader_pps"] = figures["offered_pps"] * figures["kept_share"]
        if program:
            figures.update(reader.extra())
        return figures
    finally:
        if program:
            lab.forget(program)
        lab.detach()


def _watch(lab, program, reader, seconds):
    """The window: what went through the receiver, how loaded the cores were, what the reader burnt."""
    opened, ticks, start = lab.counters(), cpu_times(), time.monotonic()
    burnt = program.cpu_seconds() if program and program.running() else 0.0
    time.sleep(seconds)
    closed, span = lab.counters(), time.monotonic() - start
    shares = usage(ticks, cpu_times())
    taken, full = closed[0] - opened[0], closed[1] - opened[1]
    figures = {
        "offered_pps": (taken + full) / span,
        "stack_pps": taken / span,
        "busy_percent": {str(cpu): round(share[0], 1) for cpu, share in shares.items() if cpu is not None},
        "steal_percent": round(shares[None][1], 2),
    }
    if program:
        if not program.running():
            raise Trouble(f"{reader.name} ended early:\n{program.text()[-1500:]}")
        figures["reader_cpu_percent"] = round(100 * (program.cpu_seconds() - burnt) / span, 1)
    return figures


def _pin_napi(lab, receive):
    """An XDP program of the reader's own may have made the NAPI instances, and with them the kthreads, anew."""
    if receive.startswith("apart"):
        lab.pin_napi_threads()


def _start_reader(lab, reader, seconds):
    program = lab.start(reader.name, reader.argv(lab, seconds), "rx", READER_CPU)
    _wait_ready(lab, reader, program)
    return program


def _wait_ready(lab, reader, program):
    """Waits until the reader has its socket or program in place, and a moment longer for the rest of its set-up."""
    signs = {
        "packet": lambda: lab.packet_sockets() > 0,
        "xdp": lab.xdp_attached,
        "either": lambda: lab.packet_sockets() > 0 or lab.xdp_attached(),
    }
    if not wait_for(lambda: not program.running() or signs[reader.ready](), 8.0, 0.05) or not program.running():
        raise Trouble(f"{reader.name} did not start:\n{program.text()[-1500:]}")
    time.sleep(reader.warm)
    if not program.running():
        raise Trouble(f"{reader.name} ended before the traffic began:\n{program.text()[-1500:]}")


def rounds(lab, contenders, generator_of, seconds, count, receive_of, say):
    """Measures all contenders in interleaved rounds. Gives per contender its figures of each round, or why there are none."""
    by_name = {contender.name: contender for contender in contenders}
    results = {name: {"rounds": [], "trouble": None} for name in by_name}

    def measure(name):
        return trial(lab, *generator_of(by_name[name]), seconds, receive_of(by_name[name]))

    return interleaved(results, count, measure, lambda figures: f"{figures.get('reader_pps', figures['stack_pps']) / 1e6:.3f} Mpps", say)


def interleaved(results, count, measure, shown, say):
    """Adds the figures of `measure(name)` to each of the results, round by round. One that is in trouble is left out from there on."""
    for number in range(count):
        for name, result in results.items():
            if result["trouble"]:
                continue
            try:
                figures = measure(name)
            except Trouble as trouble:
                result["trouble"] = str(trouble)
                say(f"  {name}: {trouble}")
                continue
            result["rounds"].append(figures)
            say(f"  round {number + 1} {name}: {shown(figures)}, steal {figures['steal_percent']} %")
    return results


def spread(values):
    """Median, lowest and highest of some values; None without any."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)} if values else None


def median_of(result, metric):
    """Median, lowest and highest of one metric over the rounds; None where nothing was measured."""
    return spread([figures[metric] for figures in result["rounds"] if metric in figures])


def ratio(results, ours, theirs, metric):
    """The ratio of two contenders in each round, and its median, lowest and highest; None where either is missing."""
    if results.get(ours, {}).get("trouble") or results.get(theirs, {}).get("trouble"):
        return None
    if ours not in results or theirs not in results:
        return None
    pairs = zip(results[ours]["rounds"], results[theirs]["rounds"])
    return spread([a[metric] / b[metric] for a, b in pairs if b.get(metric) and metric in a])


def judged(ours, theirs, metric, at_least, found):
    """A ratio beside the one that is wanted, if one is."""
    return {
        "ours": ours, "theirs": theirs, "metric": metric, "at_least": at_least, "ratio": found,
        "met": None if found is None or at_least is None else found["median"] >= at_least,
    }

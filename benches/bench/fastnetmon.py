"""For `benches/detect`: how soon FastNetMon tells of a flood that the shield would end."""

import os
import time

from .attack_lab import FAR, HOST, OTHER_CPU, TARGET, first_of, sent
from .lab import Trouble, wait_for

# Its window, `average_calculation_time`, is 5 s as it comes.
WINDOWS = {"FastNetMon, window 1 s": "average_calculation_time = 1\n", "FastNetMon, as it comes": ""}
LIMIT_PPS = 30_000  # above each second of the mix
FLOOD = 6.0  # seconds


def _configure(lab, window, script):
    """The package's own file but for what has to be another; the path of it."""
    values = {
        "networks_list_path": lab.path("networks"), "white_list_path": "/dev/null", "notify_script_path": script, "interfaces": FAR, "mirror_afpacket": "on",
        "threshold_pps": LIMIT_PPS, "ban_for_bandwidth": "off", "enable_api": "off", "prometheus": "off", "cli_stats_file_path": lab.path("dat"),
        "cli_stats_ipv6_file_path": lab.path("dat6")}
    changed = {*values, window.split(" ")[0]}
    with open("/etc/fastnetmon.conf") as file:
        kept = "".join(line for line in file if line.split("=")[0].strip() not in changed)
    path = lab.path("fastnetmon.conf")
    with open(path, "w") as file:
        file.write(f"{kept}\n{window}" + "".join(f"{key} = {value}\n" for key, value in values.items()))
    with open(lab.path("networks"), "w") as file:
        file.write(f"{TARGET}/32\n")
    return path


def trial(lab, window, calm, flood):
    """From the first packet of `flood(seconds)` to the first line of the notify script, in ms; None: it was not called."""
    script, called = lab.path("notify"), lab.path("called")
    with open(script, "w") as file:
        file.write(f"#!/bin/sh\ndate +%s.%N >> {called}\n")
    os.chmod(script, 0o755)
    open(called, "w").close()
    argv = ["fastnetmon", "--configuration_file", _configure(lab, window, script), "--log_to_console", "--disable_pid_logic"]
    program = lab.start("fastnetmon", HOST, OTHER_CPU, *argv)
    try:
        mix = lab.mix(calm + FLOOD)
        time.sleep(calm)
        early, tap = os.path.getsize(called), lab.flood_socket()
        flooding = flood(FLOOD)
        began = first_of(tap, 2.0)
        wait_for(lambda: os.path.getsize(called), FLOOD + 1.0)
        sent(mix), sent(flooding)
        if not program.running() or early or began is None:
            raise Trouble(f"FastNetMon: called before the flood: {early}, flood seen: {began}; {program.text()[-800:]}")
        with open(called) as file:
            line = file.readline()
        return (float(line) - began) * 1e3 if line else None
    finally:
        program.stop()

"""Under which conditions a run was made."""

import datetime
import os
import platform
import re
import subprocess
import time

from .lab import cpu_times, usage
from .peers import REPOSITORY, versions


def conditions():
    """Machine, kernel, programs and moment."""
    with open("/proc/cpuinfo") as file:
        info = file.read()
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    flags = re.search(r"^flags\s*:\s*(.*)$", info, re.M)
    commit = subprocess.run(["git", "-C", REPOSITORY, "describe", "--always", "--dirty"], capture_output=True, text=True)
    with open("/proc/meminfo") as file:
        memory_kib = int(re.search(r"MemTotal:\s+(\d+)", file.read())[1])
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        huge_pages = re.search(r"\[(\w+)\]", file.read())[1]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "kernel": platform.release(),
        "cpu": model[1].strip() if model else platform.machine(),
        "cores": os.cpu_count(),
        "virtual": bool(flags and " hypervisor" in flags[1]),
        "memory_gib": round(memory_kib / 2**20, 1),
        "transparent_huge_pages": huge_pages,
        "commit": commit.stdout.strip() or "unknown",
        "versions": versions(),
        "link": "veth pair between two namespaces, one queue each way, native XDP",
    }


def is_busy():
    """Whether the machine does something else: a warning to print beside the figures, or nothing."""
    before = cpu_times()
    time.sleep(1.0)
    share = usage(before, cpu_times())[None]
    if share[0] > 3 or share[1] > 1:
        return f"the machine was not quiet before the run: {share[0]:.0f} % busy, {share[1]:.1f} % stolen"
    return None

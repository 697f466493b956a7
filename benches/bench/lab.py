"""The lab: two namespaces joined by a veth pair, and programs pinned to one core in them. Everything is gone after close()."""

import atexit
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

PREFIX = "ekb-"
SENDER, RECEIVER = "ekb0", "ekb1"
# The receiver's address differs from the destination of every generated frame: the stack drops them right after the taps.
RECEIVER_MAC = "02:00:00:00:00:aa"
SENDER_CPU, READER_CPU = 0, 1
PR_SET_PDEATHSIG = 1

DROP_PROGRAM = """
#define SEC(name) __attribute__((section(name), used))
struct xdp_md;
SEC("xdp") int drop(struct xdp_md *context) { (void)context; return 1; /* XDP_DROP */ }
char _license[] SEC("license") = "GPL";
"""


class Trouble(Exception):
    """Something the machine lacks; the message says what and why."""


def sh(*argv, check=True):
    """Runs a short command and gives its standard output."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if check and done.returncode:
        raise Trouble(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _die_with_parent():
    os.setsid()
    # A background job of a script may have been told to ignore it; the readers are ended by it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Program:
    """A program running in the lab, its output in files, so that a full pipe never stops it."""

    def __init__(self, name, argv, folder):
        self.name = name
        self.ended = False
        self.out = open(os.path.join(folder, "out"), "w+b", buffering=0)
        self.err = open(os.path.join(folder, "err"), "w+b", buffering=0)
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, preexec_fn=_die_with_parent, cwd=folder)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.poll() is None

    def cpu_seconds(self):
        """User and system time used so far, all threads."""
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, patience=6.0):
        """SIGINT to the program and its children, as Ctrl-C would; SIGTERM and SIGKILL if that does not help."""
        if self.ended:
            return
        for number, wait in ((signal.SIGINT, patience), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
            if not self.running():
                break
            self._signal(number)
            try:
                self.process.wait(wait)
            except subprocess.TimeoutExpired:
                continue
        # Children that outlived it would go on sending (trafgen has one per core).
        self._signal(signal.SIGKILL)
        self.ended = True

    def _signal(self, number):
        """To the session that was made for this program, and to nothing else."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def text(self):
        """Standard output, then standard error."""
        parts = []
        for stream in (self.out, self.err):
            stream.seek(0)
            parts.append(stream.read().decode(errors="replace"))
        return "\n".join(parts)

    def stdout(self):
        self.out.seek(0)
        return self.out.read().decode(errors="replace")

    def close(self):
        self.stop(0.5)
        self.out.close()
        self.err.close()


class Lab:
    """A veth pair between two namespaces, `ekb0` (generator) and `ekb1` (receiver), one queue each way."""

    def __init__(self, queues=1):
        self.scratch = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir="/dev/shm")
        self.names = [f"{PREFIX}{os.getpid()}-{side}" for side in ("gen", "rx")]
        self.more_names = []  # namespaces that a table adds for itself
        self.programs = []
        keep_bpf_file_system()
        atexit.register(self.close)
        clear_leftovers()
        for name in self.names:
            sh("ip", "netns", "add", name)
        gen, rx = self.names
        many = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
        sh("ip", "link", "add", SENDER, "netns", gen, *many, "type", "veth", "peer", "name", RECEIVER, "netns", rx, *many)
        for name, device in ((gen, SENDER), (rx, RECEIVER)):
            # No neighbour discovery or router solicitation among the frames that are counted.
            sh("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            if device == RECEIVER:
                sh("ip", "-n", name, "link", "set", device, "address", RECEIVER_MAC)
            sh("ip", "-n", name, "link", "set", device, "up")
        # Through these processes /proc shows the counters of their namespaces.
        self.anchors = {side: self.start("anchor", ["sleep", "infinity"], side) for side in ("gen", "rx")}
        # The program that drops everything, for the generators.
        source = os.path.join(self.scratch, "drop.c")
        with open(source, "w") as file:
            file.write(DROP_PROGRAM)
        self.drop_object = source[:-1] + "o"
        sh("clang", "-O2", "-g", "-target", "bpf", "-c", source, "-o", self.drop_object)

    def start(self, name, argv, side="rx", cpu=None):
        """Starts a program in one namespace, pinned to one core."""
        pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
        folder = tempfile.mkdtemp(prefix=name.replace(" ", "_").replace("/", "_") + "-", dir=self.scratch)
        program = Program(name, ["ip", "netns", "exec", self.names[side == "rx"], *pin, *argv], folder)
        self.programs.append(program)
        return program

    def arrange(self, receive):
        """How the receiver treats a frame: in XDP (`drop`) or on through the stack (`stack`), on the sender's core; `apart-...`: the same in a
        NAPI kthread on the reader's core; `plain`: through the stack without NAPI, as veth does by itself, where live frames cannot arrive."""
        rx = self.names[1]
        self.detach()
        drop = receive.endswith("drop")
        sh("ip", "netns", "exec", rx, "ethtool", "-K", RECEIVER, "gro", "off" if drop or receive == "plain" else "on")
        if drop:
            sh("ip", "-n", rx, "link", "set", RECEIVER, "xdpdrv", "obj", self.drop_object, "sec", "xdp")
        if receive != "plain":  # without NAPI there is nothing to set
            self._threaded(receive.startswith("apart"))

    def detach(self):
        """Takes an XDP program off the receiver; says whether one was there."""
        left = self.xdp_attached()
        if left:
            sh("ip", "-n", self.names[1], "link", "set", RECEIVER, "xdpdrv", "off", check=False)
        return left

    def _threaded(self, on):
        sh("ip", "netns", "exec", self.names[1], "sh", "-c", f"echo {int(on)} >/sys/class/net/{RECEIVER}/threaded")

    def pin_napi_threads(self):
        """Pins the receiver's NAPI kthreads to the reader's core; they are made anew whenever NAPI is switched on."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm") as comm:
                    ours = comm.read().startswith(f"napi/{RECEIVER}-")
                if ours:
                    os.sched_setaffinity(int(pid), {READER_CPU})
            except OSError:
                continue  # the process ended meanwhile

    def counters(self):
        """Frames that the receiver took and frames that found its queue full, since the lab was made.

        The latter are the sender's tx_dropped: the receiver's rx_dropped also holds frames that it took and then dropped.
        """
        return self._counter("rx", RECEIVER, 1), self._counter("gen", SENDER, 11)

    def _counter(self, side, device, column):
        with open(f"/proc/{self.anchors[side].pid}/net/dev") as file:
            for line in file:
                if line.strip().startswith(f"{device}:"):
                    return int(line.split(":")[1].split()[column])
        raise Trouble(f"{device} vanished")

    def packet_sockets(self):
        """How many AF_PACKET sockets are bound in the receiver's namespace."""
        with open(f"/proc/{self.anchors['rx'].pid}/net/packet") as file:
            return sum(1 for line in file if line.split()[4:5] not in ([], ["Iface"], ["0"]))

    def xdp_attached(self):
        link = json.loads(sh("ip", "-n", self.names[1], "-j", "link", "show", RECEIVER))[0]
        return bool(link.get("xdp"))

    def close(self):
        """Puts everything away: programs first, then the namespaces with all that is in them, then the files."""
        for program in self.programs:
            program.close()
        self.programs = []
        for name in [*self.names, *self.more_names]:
            sh("ip", "netns", "del", name, check=False)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def forget(self, program):
        """Ends a program and removes its files."""
        program.close()
        self.programs.remove(program)
        shutil.rmtree(os.path.dirname(program.out.name), ignore_errors=True)


def clear_leftovers():
    """Removes namespaces and files of an earlier run that was killed: those whose maker no longer lives."""
    for name in re.findall(rf"^{PREFIX}\d+-\w+", sh("ip", "netns", "list"), re.M):
        if not os.path.exists(f"/proc/{name.split('-')[1]}"):
            sh("ip", "netns", "del", name, check=False)
    for name in os.listdir("/dev/shm"):
        maker = re.match(rf"{PREFIX}(\d+)-", name)
        if maker and not os.path.exists(f"/proc/{maker[1]}"):
            shutil.rmtree(os.path.join("/dev/shm", name), ignore_errors=True)


def keep_bpf_file_system(at="/sys/fs/bpf"):
    """Sees that there is a BPF file system, where shields are pinned; one that was not there goes at the end."""
    if sh("stat", "-f", "-c", "%T", at, check=False).strip() == "bpf_fs":
        return
    sh("mount", "-t", "bpf", "bpf", at)
    # What is registered later, such as the end of the programs that use it, is done before.
    atexit.register(sh, "umount", at, check=False)


def cpu_times():
    """Per CPU and in total (key None): busy, steal and all ticks."""
    times = {}
    with open("/proc/stat") as file:
        for line in file:
            if not line.startswith("cpu"):
                break
            label, *ticks = line.split()
            ticks = [int(tick) for tick in ticks[:8]]
            times[int(label[3:]) if label != "cpu" else None] = (sum(ticks) - ticks[3] - ticks[4] - ticks[7], ticks[7], sum(ticks))
    return times


def usage(before, after):
    """Busy and stolen share of each CPU between two readings of cpu_times, in percent."""
    shares = {}
    for cpu, (busy, steal, total) in after.items():
        span = max(1, total - before[cpu][2])
        shares[cpu] = (100 * (busy - before[cpu][0]) / span, 100 * (steal - before[cpu][1]) / span)
    return shares


def wait_for(condition, seconds, step=0.02):
    """Waits until a condition holds; says whether it did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(step)
    return False

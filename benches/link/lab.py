"""Two nodes of a cluster in network namespaces of this machine, with a broker each, for measurements of programs under `evenkeel link run`."""

import argparse, contextlib, json, os, signal, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPACES = ("ekp-a", "ekp-b")
ADDRESSES = ("10.79.0.1", "10.79.0.2")
PEER = ADDRESSES[1]
WAYS = {
    "tcp": [],
    "broker": ["link", "run", "--carry", "broker", "--"],
    "sleeping": ["link", "run", "--spin", "0s", "--"],
    "link": ["link", "run", "--"],
}


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Lab:
    """The two nodes. Leaving it ends what was started, and removes them."""

    def __init__(self, evenkeel):
        self.evenkeel, self.running = evenkeel, []

    def __enter__(self):
        # Ended from outside, it leaves nothing behind either.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        for space in SPACES:
            ip("netns", "add", space)
        try:
            ip("link", "add", "ekpa", "netns", SPACES[0], "type", "veth", "peer", "name", "ekpb", "netns", SPACES[1])
            for space, name, address in zip(SPACES, ("ekpa", "ekpb"), ADDRESSES):
                ip("-n", space, "addr", "add", address + "/24", "dev", name)
                ip("-n", space, "link", "set", "lo", "up")
                ip("-n", space, "link", "set", name, "up")
            for at, name in enumerate(("ekpa", "ekpb")):
                self.start(at, [self.evenkeel, "link", "serve", name, "--name", "ab"[at], "--cluster", "10.79.0.0/24"])
            until(lambda: all(self.status(at).get("nodes") for at in (0, 1)), 20, "the nodes do not see each other")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.running):
            end(process)
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], check=False)

    def start(self, at, words, **more):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(["ip", "netns", "exec", SPACES[at], *words], start_new_session=True, **(quiet | more))
        self.running.append(process)
        return process

    def run(self, at, words, timeout=60):
        words = ["ip", "netns", "exec", SPACES[at], *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout[-500:]} {done.stderr[-500:]}")
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def serving(self, words, port, seconds=10, **more):
        """A program on the second node from when it listens on a TCP port; it is ended with the block."""
        server = self.start(1, words, **more)
        try:
            asked = ["ss", "-Htln", f"sport = :{port}"]
            until(lambda: self.run(1, asked), seconds, f"nothing listens on port {port}")
            yield
        finally:
            end(server)

    def status(self, at):
        try:
            return json.loads(self.run(at, [self.evenkeel, "link", "status", "--json"]))
        except RuntimeError:
            return {}


def arguments(doc, what, table):
    """What was asked for, and those of the table; ends where nothing can be measured."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evenkeel", default=f"{ROOT}/target/release/evenkeel", help="the binary [default: the release build]")
    parser.add_argument(f"{what}s", nargs="*", help="those whose names begin so [default: all]")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run it as root: it makes network namespaces")
    if not os.path.exists(args.evenkeel):
        sys.exit(f"{args.evenkeel} is not there: build it with `make build`")
    begins = getattr(args, f"{what}s")
    wanted = {name: row for name, row in table.items() if not begins or any(name.startswith(begin) for begin in begins)}
    if not wanted:
        sys.exit(f"no {what} begins so: there are {', '.join(table)}")
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, kernel {os.uname().release}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, "
          f"veth pair, MTU 1500; median of {args.rounds} rounds", end="")
    return args, wanted


def until(is_so, seconds, otherwise):
    for _ in range(int(seconds * 10)):
        if is_so():
            return
        time.sleep(0.1)
    raise RuntimeError(otherwise)


def end(process):
    """Ends a process and those that it started."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(3)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    except ProcessLookupError:
        pass

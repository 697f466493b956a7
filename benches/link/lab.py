"""Two nodes of a cluster in network namespaces of this machine, with a broker each, for measurements of programs under `evenkeel link run`."""

import json, os, signal, subprocess, sys, time

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

    def listens(self, at, port):
        """Waits until something listens on a TCP port."""
        asked = ["ss", "-Htln", f"sport = :{port}"]
        until(lambda: self.run(at, asked), 10, f"nothing listens on port {port}")

    def status(self, at):
        try:
            return json.loads(self.run(at, [self.evenkeel, "link", "status", "--json"]))
        except RuntimeError:
            return {}


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

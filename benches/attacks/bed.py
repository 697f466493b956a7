"""Two network namespaces (ekat-net, ekat-host) with a veth pair stand for the network and the host; they are removed at the end."""

import json, os, pathlib, signal, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE.parent.parent / "target/release/evenkeel"
BESIDE = [sys.executable, str(HERE / "beside.py")]
# A shield with its defaults: limits are learned, none is given.
LEARNED = 'protect = ["198.18.0.2/32", "2001:2::2/128"]\n[detection]\nevents = "{events}"\n'

SPACES = ("ekat-net", "ekat-host")
CARDS = ("ekat0", "ekat1")
MACS = (bytes.fromhex("02000000a701"), bytes.fromhex("02000000a702"))
ADDRESSES = (("198.18.0.1", "2001:2::1"), ("198.18.0.2", "2001:2::2"))


def arguments(parser):
    """What was asked for, with the program that is measured; ends where nothing can be."""
    parser.add_argument("--evenkeel", default=str(PROGRAM), help="the binary [default: the release build]")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run it as root: it makes network namespaces")
    if not os.path.exists(args.evenkeel):
        sys.exit(f"{args.evenkeel} is not there: build it with `make build`")
    return args


def machine():
    return f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, kernel {os.uname().release}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def within(at, words, **more):
    return subprocess.Popen(["nsenter", f"--net=/run/netns/{SPACES[at]}", *words], start_new_session=True, **more)


class Bed:
    """The network and the host. Leaving it ends what was started, and removes them."""

    def __enter__(self):
        self.running = []
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        for space in SPACES:
            ip("netns", "add", space)
        try:
            ip("link", "add", CARDS[0], "netns", SPACES[0], "type", "veth", "peer", "name", CARDS[1], "netns", SPACES[1])
            for at in (0, 1):
                run = ("-n", SPACES[at])
                ip(*run, "link", "set", CARDS[at], "address", MACS[at].hex(":"))
                ip(*run, "link", "set", "lo", "up")
                ip(*run, "link", "set", CARDS[at], "up")
                ip(*run, "addr", "add", ADDRESSES[at][0] + "/24", "dev", CARDS[at])
                ip(*run, "addr", "add", ADDRESSES[at][1] + "/64", "dev", CARDS[at], "nodad")
                for other in ADDRESSES[1 - at]:
                    ip(*run, "neigh", "replace", other, "lladdr", MACS[1 - at].hex(":"), "dev", CARDS[at], "nud", "permanent")
            # Answers of the shield leave the host by frames of XDP, which a veth takes while its peer runs NAPI.
            within(0, ["ethtool", "-K", CARDS[0], "gro", "on"], stdout=subprocess.DEVNULL).wait()
            within(1, ["ethtool", "-K", CARDS[1], "gro", "on"], stdout=subprocess.DEVNULL).wait()
            # What floods goes nowhere else.
            ip("-n", SPACES[1], "route", "add", "default", "via", ADDRESSES[0][0])
            ip("-n", SPACES[1], "-6", "route", "add", "default", "via", ADDRESSES[0][1])
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, at, words, **more):
        process = within(at, words, **more)
        self.running.append(process)
        return process

    def guard(self, evenkeel, folder, rules):
        """The host's servers and a shield in front of them, when it is up. What it says is in the file `said` of the folder, its events in `events`."""
        self.start(1, [*BESIDE, "serve", *ADDRESSES[1]])
        (folder / "rules.toml").write_text(rules.replace("{events}", str(folder / "events")))
        said = open(folder / "said", "w")
        self.start(1, [evenkeel, "shield", "run", CARDS[1], "--rules", str(folder / "rules.toml"), "--quiet"], stdout=said, stderr=said)
        words = ["nsenter", f"--net=/run/netns/{SPACES[1]}", evenkeel, "shield", "status", CARDS[1], "--json"]
        up = lambda: subprocess.run(words, capture_output=True).stdout
        if not until(up, 10, None):
            raise RuntimeError(f"the shield is not up: {(folder / 'said').read_text()[-400:]}")

    def ask(self):
        """Clients of the host's servers."""
        return self.start(0, [*BESIDE, "ask", *ADDRESSES[1]], stdout=subprocess.PIPE, text=True)

    def __exit__(self, *_):
        for process in reversed(self.running):
            end(process)
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], check=False)


def end(process, by=signal.SIGTERM):
    """Ends a process and those that it started; what it said."""
    if process.poll() is None:
        process.send_signal(by)
    try:
        return process.communicate(timeout=20)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def until(is_so, seconds, otherwise):
    """Waits for something; the time at which it was so."""
    ends = time.time() + seconds
    while time.time() < ends:
        found = is_so()
        if found:
            return found
        time.sleep(0.01)
    if otherwise:
        raise RuntimeError(otherwise)
    return None


def events(path):
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]

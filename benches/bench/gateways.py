"""Tables `between` and `gateways`: what crosses a gateway. `evenkeel shield run --between` with both backends stands beside a bare redirect, a bridge
and Suricata's AF_PACKET inline mode. In `gateways` all get the flood from a transmit ring, over veths as they come: rings take no live frames."""

import os
import subprocess

from .contenders import Generator
from .lab import READER_CPU, RECEIVER, SENDER, SENDER_CPU, sh
from .peers import EVENKEEL
from .shield import PORT, PREFIXES, RULES, VICTIM, Filter, load_c, rates_table, rules_file, running_shield, start_inside, syn_flood

FAR, OUT = "ekb3", "ekb4"  # the gateway's other side and what is behind it

# bpf_redirect is all that a bare gateway does.
REDIRECT = """
#define SEC(name) __attribute__((section(name), used))
static long (*redirect)(unsigned int to, unsigned long long flags) = (void *)23; /* BPF_FUNC_redirect */
SEC("xdp") int to_it(void *context) { (void)context; return redirect(TO, 0); }
char LICENSE[] SEC("license") = "GPL";
"""

SURICATA = "suricata"
# suricata.yaml(7.0): inline mode copies what no rule drops; TPACKET_V3 cannot do that. Offloads are set by the lab.
CONFIG = """%YAML 1.1
---
default-log-dir: {folder}
outputs: []
logging:
  default-log-level: notice
  outputs: [{{console: {{enabled: yes}}}}]
capture: {{disable-offloading: false, checksum-validation: none}}
stream: {{inline: yes, checksum-validation: no}}
max-pending-packets: 65534
af-packet:
{interfaces}"""
INTERFACE = """  - {{interface: {this}, copy-iface: {other}, copy-mode: ips, threads: 1, cluster-id: {cluster}, cluster-type: cluster_flow,
     defrag: no, use-mmap: yes, tpacket-v3: no, ring-size: 65536, checksum-checks: no}}
"""


def gateway(lab):
    """The receiver's second interface, and behind it a namespace that drops what comes."""
    rx = lab.names[1]
    if FAR in sh("ip", "-n", rx, "link"):
        return
    behind = f"{rx}-out"
    sh("ip", "netns", "add", behind)
    lab.more_names.append(behind)
    sh("ip", "link", "add", FAR, "netns", rx, "type", "veth", "peer", "name", OUT, "netns", behind)
    sh("ip", "netns", "exec", behind, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
    sh("ip", "-n", behind, "link", "set", OUT, "xdpdrv", "obj", lab.drop_object, "sec", "xdp")
    sh("ip", "-n", behind, "link", "set", OUT, "up")
    sh("ip", "-n", rx, "link", "set", FAR, "up")
    # So that frames can be sent back to the sender's end, too.
    sh("ip", "netns", "exec", lab.names[0], "ethtool", "-K", SENDER, "gro", "on")
    lab.anchors["out"] = lab.start("anchor", ["nsenter", f"--net=/run/netns/{behind}", "sleep", "infinity"], "rx")


def crossed(lab):
    return lab._counter("out", OUT, 1)


def load_redirect(lab):
    """bpf_redirect to the gateway's other side, and nothing else."""
    index = sh("ip", "-n", lab.names[1], "-o", "link", "show", FAR).split(":")[0]
    load_c(lab, "redirect", REDIRECT, RECEIVER, f"-DTO={index}")


def _bridge(lab):
    gateway(lab)
    rx = lab.names[1]
    sh("ip", "-n", rx, "link", "add", "ekbr", "type", "bridge", "mcast_snooping", "0")
    for device in (RECEIVER, FAR):
        sh("ip", "-n", rx, "link", "set", device, "master", "ekbr")
        sh("ip", "-n", rx, "link", "set", device, "promisc", "on")
    sh("ip", "-n", rx, "link", "set", "ekbr", "up")
    # A destination that is nobody's own is sent on; the bridge's entry says where.
    sh("bridge", "-n", rx, "fdb", "replace", "02:00:00:00:00:bb", "dev", FAR, "master", "static")


def _bridge_away(lab):
    sh("ip", "-n", lab.names[1], "link", "del", "ekbr", check=False)


def _offloads_off(lab):
    """Rings must not be given merged frames."""
    gateway(lab)
    for device in (RECEIVER, FAR):
        sh("ip", "netns", "exec", lab.names[1], "ethtool", "-K", device, "gro", "off")


def bare_redirect(build):
    def place(lab):
        build(lab)
        load_redirect(lab)

    return place


def _unwatched(path):
    """The same rules, and nothing watched for attacks."""
    found = os.path.join(os.path.dirname(path), "unwatched.toml")
    with open(path) as file, open(found, "w") as copy:
        copy.writelines(line for line in file if not line.startswith("protect"))
    return found


def _between(*more, watched=True):
    def place(lab):
        _offloads_off(lab)
        rules = rules_file(lab, PREFIXES, "pass")
        if not watched:
            rules = _unwatched(rules)
        argv = [EVENKEEL, "shield", "run", "--between", f"{RECEIVER},{FAR}", "--rules", rules, "--quiet", *more]
        return start_inside(lab, "evenkeel shield", argv, READER_CPU, "shield up")

    return place


def _suricata(rule, arrange=_offloads_off):
    def place(lab):
        arrange(lab)
        folder = os.path.join(lab.scratch, "suricata")
        os.makedirs(folder, exist_ok=True)
        pairs = ((RECEIVER, FAR, 98), (FAR, RECEIVER, 97))
        interfaces = "".join(INTERFACE.format(this=this, other=other, cluster=cluster) for this, other, cluster in pairs)
        paths = [os.path.join(folder, name) for name in ("suricata.yaml", "rules")]
        for path, text in zip(paths, (CONFIG.format(folder=folder, interfaces=interfaces), rule)):
            with open(path, "w") as file:
                file.write(text)
        argv = [SURICATA, "-c", paths[0], "-S", paths[1], "-l", folder, "--af-packet", "--runmode", "workers", "--pidfile", f"{folder}/pid"]
        return start_inside(lab, "suricata", argv, READER_CPU, "ngine started")

    return place


def _suricata_row():
    """Suricata among the contenders of table `between`, by live frames; merging stays on, which they need and SYNs are not subject to."""
    return Filter(f"Suricata {version()}, inline", f"AF_PACKET, copy-mode ips, no rules; its threads on core {READER_CPU}", _suricata("", gateway), in_xdp=False, needs=SURICATA)


def version():
    try:
        words = subprocess.run([SURICATA, "-V"], capture_output=True, text=True).stdout.split()
    except OSError:
        return "absent"
    return words[words.index("version") + 1] if "version" in words else "unknown"


def between(lab, _generator, options, say):
    """Table `between`: frames that cross from one interface to another."""
    bare, bridge = "bare XDP redirect", "Linux bridge"
    ours = f"evenkeel shield --between, {RULES} rules, {PREFIXES:,} prefixes"

    def both(lab):
        gateway(lab)
        return running_shield("--between", f"{RECEIVER},{FAR}", rules=lambda lab: rules_file(lab, PREFIXES, "pass"))(lab)

    filters = [
        Filter(bare, "bpf_redirect and nothing else", bare_redirect(gateway)),
        Filter(ours, "filtered, counted, the flood's rule passes it", both),
        Filter(bridge, "no rules", _bridge, _bridge_away, in_xdp=False),
        _suricata_row(),
    ]
    flood = syn_flood("198.18.0.0/16", "02:00:00:00:00:bb")
    how = f"in at one veth, out at another and dropped behind it; all on core {SENDER_CPU}; frames that arrived behind it"
    return rates_table(lab, "between", how, filters, flood, crossed, [(ours, bare, 0.95), (ours, bridge, 2.5)], options, say)


def _flood(lab, seconds):
    return [EVENKEEL, "gen", SENDER, "--syn-flood", "--backend", "tx-ring", "--flows", "65536", "--src", "198.18.0.0/16", "--dst", VICTIM, "--dst-port", str(PORT),
            "--dst-mac", "02:00:00:00:00:bb", "--rate", "max", "--duration", f"{seconds:.1f}s", "--cpus", str(SENDER_CPU)]


def gateways(lab, _generator, options, say):
    """Table `gateways`."""
    xdp, ring = (f"evenkeel shield --between, {backend}" for backend in ("XDP", "rings"))
    bare = "bare XDP redirect"
    none, one = f"Suricata {version()}, no rules", "Suricata, one drop rule"
    rule = 'drop udp any any -> any 9 (msg:"discard"; sid:1; rev:1;)\n'
    unwatched = f"{ring}, nothing watched"
    ours = f"{RULES} rules, {PREFIXES:,} prefixes; the flood's rule passes it"
    counted = f"everything counted per rule and per protected address, detection on, {ours}"
    filters = [
        Filter(bare, "bpf_redirect and nothing else: what the transmit ring offers", bare_redirect(_offloads_off), receive="plain"),
        Filter(xdp, counted, _between(), receive="plain"),
        Filter(ring, counted + "; one thread each way", _between("--backend", "ring"), receive="plain", in_xdp=False),
        Filter(unwatched, f"detection off, {ours}; one thread each way", _between("--backend", "ring", watched=False), receive="plain", in_xdp=False),
        Filter(none, "AF_PACKET, copy-mode ips, workers, one thread each way", _suricata(""), receive="plain", in_xdp=False, needs=SURICATA),
        Filter(one, "as above; the rule is about UDP to port 9, which does not come", _suricata(rule), receive="plain", in_xdp=False, needs=SURICATA),
    ]
    how = f"65,536 flows of SYNs from a transmit ring; sent and received on core {SENDER_CPU}, user space on core {READER_CPU}; frames that arrived behind"
    wanted = [(xdp, bare, None), (xdp, none, None), (ring, none, 2), (ring, one, None), (ring, unwatched, None)]
    return rates_table(lab, "gateways", how, filters, Generator("evenkeel gen", _flood, EVENKEEL, "SYNs"), crossed, wanted, options, say)

"""Why a ratio that was wanted is missed, as far as it is known: shown beside those that a run finds missed, and only then."""

UNKNOWN = "No reason is known."
SAME_PATH = (
    "The sending core limits both, and the reader's core has time to spare. Both take the same kernel path into the same kind of ring and look "
    "for blocks every 100 us: no difference that could be a reason is known.")

EVERY_DROP = (
    "Each drop passes the tracepoint, whether it is looked at or not; the column of the kernel programs' own time says how much that takes. The "
    "budget bounds the looks only.")

RULES = "evenkeel shield, 25 rules, 100,000 prefixes"
CACHES = (
    "Sources drawn at random find their part of the tables in the second or third cache. That, 25 rules, and counting per rule and per address is what the others do not do.")

COOKIES = (
    "Half an hour later (2026-11-30) the same program answered 3.44 Mpps, 0.99 of the build of 2026-11-27 in turns (`benches/pairs`), instead of 2.34: no change "
    "of the program. The reason is not known.")
ROUTED = "In turns with the build of 2026-11-27 it forwards 1.01 times as much (`benches/pairs`, 2026-11-30). No reason is known."
CONNECTIONS = "In turns with the build of 2026-11-27 its throughput is 1.09 (0.87-1.29) (`benches/pairs`, 2026-11-30). No reason is known."

# (table, ours, theirs) or (table,) -> reason
REASONS = {
    ("drop", RULES, "bare XDP_DROP"): CACHES,
    ("drop", RULES, "xdp-filter"): CACHES,
    ("prefixes", "1,000,000 prefixes", "10 prefixes"): CACHES,
    ("pass", "behind evenkeel shield, 25 rules, 100,000 prefixes", "no shield"): CACHES,
    ("between", "evenkeel shield --between, 25 rules, 100,000 prefixes", "bare XDP redirect"): CACHES,
    ("gateways", "evenkeel shield --between, rings", "Suricata 7.0.10, no rules"):
        "A tenth of the rings' time is their own in a profile; half sends the frame (AF_PACKET, veth), more than a third is the receiving end behind, on the same "
        "core. By sendmmsg it was 1.14 times as fast in a trial; that is not done.",
    ("cookies", "evenkeel shield, challenge", "bare answer"): COOKIES,
    ("cookies", "evenkeel shield, challenge", "plain kernel, tcp_syncookies=2"): COOKIES,
    ("route", "evenkeel route, routed", "xdp-forward, fib-full"): ROUTED,
    ("route", "evenkeel route, routed", "bare XDP redirect"): ROUTED,
    ("stateful", "route-stateful", "stateful"): CONNECTIONS,
    ("link", "link, 64 bytes", "TCP, 64 bytes"): "See `link bench` above.",
    ("doctor",): "It watches the counters for 1 s, so that losses of long ago are no finding. All else takes 40 ms.",
    ("route-full", "evenkeel route, routed", "xdp-forward, fib-full"):
        "In windows of 1 s hardly a destination comes twice: the kernel is asked for each frame by both, and evenkeel looks at more of each.",
    ("gen", "evenkeel gen", "live_frames"):
        "The bare sender never touches the frame: its program redirects an unchanging one. Ours writes addresses, ports and checksums, and "
        "with them the frame's two cache lines, in every packet: without these writes, and nothing else left out, it ran level with the bare "
        "sender. They cost a few nanoseconds, which weigh the more the faster the machine makes all the rest.",
    ("inline", "evenkeel ring", "tpacket_rx"): SAME_PATH,
    ("bench", "evenkeel bench, wire's ceiling", "evenkeel gen --udp"):
        "The bench's program numbers each unit, stamps one in 31 and makes its checksum, its receiving one parses it and keeps the flow's sequence, and "
        "both read the clock: in a profile of core 0 these are what gen and a bare drop do not have.",
    ("cost", "evenkeel ledger, drop", "nothing watching"): EVERY_DROP,
    ("cost", "evenkeel ledger, rule", "nothing watching"): EVERY_DROP,
    ("cost", "evenkeel ledger, drop", "empty program on kfree_skb"):
        "A drop takes 190 ns here with all that sends and receives it, so that 2 % are 4 ns. Finding this CPU's slot and counting in it takes 7 ns, "
        "the looks 1 ns by their budget.",
}

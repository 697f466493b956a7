"""Why a ratio that was wanted is missed, as far as it is known: shown beside those that a run finds missed, and only then."""

SAME_PATH = (
    "The sending core limits both, and the reader's core has time to spare. Both take the same kernel path into the same kind of ring and look "
    "for blocks every 100 us: no difference that could be a reason is known.")

EVERY_DROP = (
    "Each drop passes the tracepoint, whether it is looked at or not; the column of the kernel programs' own time says how much that takes. The "
    "budget bounds the looks only.")

RULES = "evenkeel shield, 25 rules, 100,000 prefixes"
CACHES = (
    "Sources drawn at random find their part of the tables in the second or third cache; that, judging 25 rules, and counting per rule and per protected address is "
    "what the bare program does not do.")

# (table, ours, theirs) or (table,) -> reason
REASONS = {
    ("drop", RULES, "bare XDP_DROP"): CACHES,
    ("drop", RULES, "xdp-filter"):
        "xdp-filter looks up one port here, in a program made for what it is asked; ours judges 25 rules and the source among 100,000 prefixes, and counts "
        "per rule and per protected address. " + CACHES,
    ("prefixes", "1,000,000 prefixes", "10 prefixes"): CACHES,
    ("pass", "behind evenkeel shield, 25 rules, 100,000 prefixes", "no shield"): CACHES,
    ("between", "evenkeel shield --between, 25 rules, 100,000 prefixes", "bare XDP redirect"): CACHES,
    ("gateways", "evenkeel shield --between, rings", "Suricata 7.0.10, no rules"):
        "In a profile of the core that both have for themselves, a tenth of the rings' time is their own; the rest is the kernel's: half of it sends the frame "
        "(AF_PACKET, veth), more than a third is the receiving end behind, which runs on the same core. Sent by sendmmsg instead of the ring, which lends "
        "pages that a veth copies again, it was 1.14 times as fast in a trial; that is not done.",
    ("route-many", "evenkeel route, routed", "xdp-forward, fib-full"): "Against a bare redirect it is 0.97: what is left is 12 ns.",
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

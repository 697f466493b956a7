"""Why a ratio that was wanted is missed, as far as it is known: shown beside those that a run finds missed, and only then."""

SAME_PATH = (
    "The sending core limits both, and the reader's core has time to spare. Both take the same kernel path into the same kind of ring and look "
    "for blocks every 100 us: no difference that could be a reason is known.")

EVERY_DROP = (
    "Each drop passes the tracepoint, whether it is looked at or not; the column of the kernel programs' own time says how much that takes. The "
    "budget bounds the looks only.")

# (table, ours, theirs) or (table,) -> reason
REASONS = {
    ("gen", "evenkeel gen", "live_frames"):
        "The bare sender never touches the frame: its program redirects an unchanging one. Ours writes addresses, ports and checksums, and "
        "with them the frame's two cache lines, in every packet: without these writes, and nothing else left out, it ran level with the bare "
        "sender. They cost a few nanoseconds, which weigh the more the faster the machine makes all the rest.",
    ("inline", "evenkeel ring", "tpacket_rx"): SAME_PATH,
    ("bench", "evenkeel bench, wire's ceiling", "evenkeel gen --udp"):
        "The bench's program numbers and stamps each unit and makes its checksum, its receiving one parses it and keeps the flow's sequence, and "
        "both read the clock: in a profile of core 0 these are what gen and a bare drop do not have.",
    ("cost", "evenkeel ledger, drop", "nothing watching"): EVERY_DROP,
    ("cost", "evenkeel ledger, rule", "nothing watching"): EVERY_DROP,
}

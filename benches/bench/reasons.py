"""Why a ratio that was wanted is missed, as far as it is known: shown beside those that a run finds missed, and only then."""

SAME_PATH = (
    "Both spend the sending core, which is what limits the rate, in the same kernel path into the same kind of ring, and the reader's core has "
    "time to spare: a faster reader cannot show.")

LIMITED = "The sending core limits the ring, as it limits tcpdump's, rather than the reader: no more frames are offered to it."

# (table, ours, theirs) or (table,) -> reason
REASONS = {
    ("gen", "evenkeel gen", "live_frames"):
        "The bare sender never touches the frame: its program redirects an unchanging one. Ours writes addresses, ports and checksums, and "
        "with them the frame's two cache lines, in every packet.",
    ("inline", "evenkeel ring", "tpacket_rx"): SAME_PATH,
    ("write", "evenkeel ring", "tcpdump"): SAME_PATH,
    ("write", "evenkeel ring", "dumpcap"): LIMITED,
    ("apart", "evenkeel auto --try-xdp", "tcpdump"):
        "It may choose only what lets frames pass: the stack still makes a buffer of each and drops it, on the core that the reader needs.",
}

"""Why a ratio that was wanted is missed, as far as it is known: shown beside those that a run finds missed, and only then."""

SAME_PATH = (
    "The sending core limits both, and the reader's core has time to spare. Both take the same kernel path into the same kind of ring, but ours "
    "is woken by the kernel, on the sending core, where the yardstick looks by itself; whether that is the difference is not shown yet.")
TCPDUMP = (
    "The sending core limits both in the same kernel path into the same kind of ring, and both readers have time to spare: a faster reader "
    "cannot show.")

LIMITED = "The sending core limits the ring, as it limits tcpdump's, rather than the reader: no more frames are offered to it."

# (table, ours, theirs) or (table,) -> reason
REASONS = {
    ("gen", "evenkeel gen", "live_frames"):
        "The bare sender never touches the frame: its program redirects an unchanging one. Ours writes addresses, ports and checksums, and "
        "with them the frame's two cache lines, in every packet. That this is all of the difference is supposed, not shown: leaving out the "
        "writes closed about a quarter of it, which is within the spread.",
    ("inline", "evenkeel ring", "tpacket_rx"): SAME_PATH,
    ("write", "evenkeel ring", "tcpdump"): TCPDUMP,
    ("write", "evenkeel ring", "dumpcap"): LIMITED,
    ("apart", "evenkeel auto --try-xdp", "tcpdump"):
        "It may choose only what lets frames pass: the stack still makes a buffer of each and drops it, on the core that the reader needs.",
}

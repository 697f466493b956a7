//! Every hand-written unsafe call: packet rings, AF_XDP rings, ethtool ioctls, mmap, setns.

//! Packets as bytes: build, parse, checksum; no I/O, no unsafe.

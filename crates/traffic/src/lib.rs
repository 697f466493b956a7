//! Packet generators and what they really achieved.

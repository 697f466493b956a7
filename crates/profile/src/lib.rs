//! What the CPU time goes to: sampled kernel stacks, by class, per core and per packet.

//! What to change on a machine: checks with evidence, verdict, fix, risk and gain.

//! Queue interrupts, RPS, XPS and NAPI threads spread over the cores.

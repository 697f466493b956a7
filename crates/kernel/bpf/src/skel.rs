//! The skeletons that libbpf-cargo generated from every `*.bpf.c` of this crate.

macro_rules! skeleton {
    ($name:ident $file:tt) => {
        #[allow(
            unsafe_code,
            unreachable_pub,
            dead_code,
            clippy::all,
            clippy::pedantic,
            clippy::undocumented_unsafe_blocks,
            clippy::allow_attributes_without_reason,
            rust_2018_idioms,
            reason = "generated"
        )]
        pub(crate) mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($file), ".skel.rs"));
        }
    };
}

macro_rules! skeletons {
    ($($name:ident)+) => { $(skeleton! { $name $name })+ };
}

skeletons! {
    allocations barrier bench_clock bench_rx bench_tx burst chain chain_cross chain_none drops fanout flood_end guard
    guard_options link loss napi_cost port_owner port_reuse profile ring_sockets route route_loss route_out
    route_stateful route_steer route_watch shield shield_ack shield_hold tap xdp_drop xdp_fib xdp_pass xmit_drops
    xsk_redirect
}
skeleton! { r#gen gen }

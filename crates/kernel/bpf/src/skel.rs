//! The skeletons that libbpf-cargo generated from every `*.bpf.c` of this crate.

macro_rules! skeleton {
    ($name:ident, $file:literal) => {
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
            include!(concat!(env!("OUT_DIR"), $file));
        }
    };
}

skeleton!(allocations, "/allocations.skel.rs");
skeleton!(barrier, "/barrier.skel.rs");
skeleton!(bench_clock, "/bench_clock.skel.rs");
skeleton!(bench_rx, "/bench_rx.skel.rs");
skeleton!(bench_tx, "/bench_tx.skel.rs");
skeleton!(burst, "/burst.skel.rs");
skeleton!(chain, "/chain.skel.rs");
skeleton!(chain_cross, "/chain_cross.skel.rs");
skeleton!(chain_none, "/chain_none.skel.rs");
skeleton!(drops, "/drops.skel.rs");
skeleton!(flood_end, "/flood_end.skel.rs");
skeleton!(r#gen, "/gen.skel.rs");
skeleton!(guard, "/guard.skel.rs");
skeleton!(guard_options, "/guard_options.skel.rs");
skeleton!(link, "/link.skel.rs");
skeleton!(loss, "/loss.skel.rs");
skeleton!(napi_cost, "/napi_cost.skel.rs");
skeleton!(port_owner, "/port_owner.skel.rs");
skeleton!(port_reuse, "/port_reuse.skel.rs");
skeleton!(profile, "/profile.skel.rs");
skeleton!(ring_sockets, "/ring_sockets.skel.rs");
skeleton!(route, "/route.skel.rs");
skeleton!(route_stateful, "/route_stateful.skel.rs");
skeleton!(route_out, "/route_out.skel.rs");
skeleton!(route_steer, "/route_steer.skel.rs");
skeleton!(route_loss, "/route_loss.skel.rs");
skeleton!(route_watch, "/route_watch.skel.rs");
skeleton!(shield, "/shield.skel.rs");
skeleton!(shield_ack, "/shield_ack.skel.rs");
skeleton!(shield_hold, "/shield_hold.skel.rs");
skeleton!(tap, "/tap.skel.rs");
skeleton!(xsk_redirect, "/xsk_redirect.skel.rs");
skeleton!(xdp_drop, "/xdp_drop.skel.rs");
skeleton!(xdp_fib, "/xdp_fib.skel.rs");
skeleton!(xdp_pass, "/xdp_pass.skel.rs");
skeleton!(fanout, "/fanout.skel.rs");
skeleton!(xmit_drops, "/xmit_drops.skel.rs");

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sends frames that user space wrote: run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, once per frame, in their order. No socket buffer is
 * made: a frame's bytes are copied into a page that the device gets. */
#include "lib/common.h"

/* Frames of a burst, a power of two, and bytes of each place: a word with the length before them, another word to align. */
#define PLACES 256
#define PLACE_BYTES 4096
#define HEAD_BYTES 8
#define FRAME_MAX 3072

/* Bytes of the frame that each run gets. */
const volatile __u32 burst_given = FRAME_MAX;

/* The next place, and frames that did not leave, set to 0 before a burst; the task that runs it (by its address: Linux 6.1 tells XDP no process id). */
struct burst_state {
	__u64 next;
	__u64 dropped;
	__u64 task;
};

struct burst_state burst_state;

__u8 burst_places[PLACES * PLACE_BYTES] SEC(".data.burst_places") = {};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} burst_device SEC(".maps");

SEC("xdp")
int ek_burst(struct xdp_md *ctx)
{
	__u64 at = (burst_state.next & (PLACES - 1)) * PLACE_BYTES;
	__u32 len = *(volatile __u32 *)(burst_places + at);

	if (!burst_state.next++)
		burst_state.task = bpf_get_current_task();
	if (len < ETH_HLEN || len > FRAME_MAX || len > burst_given ||
	    bpf_xdp_adjust_tail(ctx, (int)len - (int)burst_given) || bpf_xdp_store_bytes(ctx, 0, burst_places + at + HEAD_BYTES, len)) {
		burst_state.dropped++;
		return XDP_DROP;
	}
	return bpf_redirect_map(&burst_device, 0, 0);
}

/* Frames of a burst that a driver does not take are dropped, and nobody is told. A veth takes none while its other end has no NAPI: newer kernels say so
 * to whoever redirects a frame, older ones when it is to be sent. */
SEC("raw_tp/xdp_redirect_err")
int ek_burst_refused(void *ctx)
{
	if (burst_state.task == bpf_get_current_task())
		burst_state.dropped++;
	return 0;
}

/* The fourth argument is how many frames the driver did not take. */
SEC("raw_tp/xdp_devmap_xmit")
int ek_burst_dropped(struct bpf_raw_tracepoint_args *ctx)
{
	int dropped = (int)ctx->args[3];

	if (dropped > 0 && burst_state.task == bpf_get_current_task())
		burst_state.dropped += dropped;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

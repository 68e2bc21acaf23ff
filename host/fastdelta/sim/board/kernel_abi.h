// SPDX-License-Identifier: Apache-2.0
//
// What the board model needs from a simulated kernel: pointers to its ports and a function that
// evaluates it. A kernel is a shared library of its own that exports `fd_kernel_abi` and
// `fd_kernel_create`, so the board model is compiled once and serves every kernel.
//
// Signal values are unsigned and little-endian, in the smallest of 1, 2, 4, 8 bytes that holds
// them, or a whole number of 4-byte words above 64 bits. Optional signals may be null.
#ifndef FASTDELTA_KERNEL_ABI_H
#define FASTDELTA_KERNEL_ABI_H

#include <cstdint>

constexpr std::uint32_t kFdKernelAbi = 1;

struct fd_signal {
    std::uint8_t* value;  // null: the kernel has no such port
    std::uint32_t bytes;
};

struct fd_control_port {  // AXI4-Lite slave, 32 data bits
    fd_signal awaddr, araddr;
    std::uint8_t *awvalid, *awready;
    std::uint8_t *wdata, *wstrb, *wvalid, *wready;
    std::uint8_t *bresp, *bvalid, *bready;
    std::uint8_t *arvalid, *arready;
    std::uint8_t *rdata, *rresp, *rvalid, *rready;
};

struct fd_read_channels {
    fd_signal araddr, arid, arlen, arsize, arburst;  // arid, arlen, arsize, arburst: optional
    std::uint8_t *arvalid, *arready;
    fd_signal rdata, rid;  // rid: optional
    std::uint8_t *rresp, *rlast, *rvalid, *rready;  // rresp, rlast: optional
};

struct fd_write_channels {
    fd_signal awaddr, awid, awlen, awsize, awburst;  // awid, awlen, awsize, awburst: optional
    std::uint8_t *awvalid, *awready;
    fd_signal wdata, wstrb;
    std::uint8_t *wlast, *wvalid, *wready;  // wlast: optional
    fd_signal bid;  // optional
    std::uint8_t *bresp, *bvalid, *bready;  // bresp: optional
};

struct fd_memory_port {  // AXI4 master
    const char* name;
    std::uint32_t data_bytes;
    bool reads, writes;
    fd_read_channels read;
    fd_write_channels write;
};

struct fd_kernel {
    void* model;
    std::uint8_t *clock, *reset_n;
    std::uint8_t* interrupt;  // optional
    fd_control_port control;
    std::uint32_t port_count;
    fd_memory_port* ports;
    void (*evaluate)(void* model);
    bool (*open_trace)(fd_kernel*, const char* path);  // false: built without traces
    void (*dump_trace)(fd_kernel*, std::uint64_t time);
    void (*destroy)(fd_kernel*);
};

#endif

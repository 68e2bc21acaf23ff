// SPDX-License-Identifier: Apache-2.0
//
// Binds the ports of one Verilated kernel to kernel_abi.h. The generated source of a kernel
// includes its model and this file, and then says FD_KERNEL(model class, FD_PORT(name) ...).
// Which signals an AXI port has is found in the model itself.
#ifndef FASTDELTA_KERNEL_GLUE_H
#define FASTDELTA_KERNEL_GLUE_H

#include <memory>
#include <vector>

#include "kernel_abi.h"
#include "verilated.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
#endif

#define FD_OPTIONAL(model, signal) \
    [](auto& m) -> fd_signal { \
        if constexpr (requires { m.signal; }) { \
            return {reinterpret_cast<std::uint8_t*>(&m.signal), sizeof(m.signal)}; \
        } else { \
            return {nullptr, 0}; \
        } \
    }(model)

#define FD_REQUIRED(model, signal) \
    [](auto& m) -> fd_signal { \
        static_assert(requires { m.signal; }, "the kernel has no port " #signal); \
        return FD_OPTIONAL(m, signal); \
    }(model)

#define FD_BIT(model, signal) \
    [](auto& m) -> std::uint8_t* { \
        static_assert(sizeof(m.signal) == 1, #signal " is wider than AXI says"); \
        return FD_REQUIRED(m, signal).value; \
    }(model)

#define FD_PORT(prefix) \
    [](auto& m, std::vector<fd_memory_port>& ports) { \
        fd_memory_port port{}; \
        port.name = #prefix; \
        if constexpr (requires { m.prefix##_arvalid; }) { \
            fd_read_channels& read = port.read; \
            port.reads = true; \
            read.araddr = FD_REQUIRED(m, prefix##_araddr); \
            read.arid = FD_OPTIONAL(m, prefix##_arid); \
            read.arlen = FD_OPTIONAL(m, prefix##_arlen); \
            read.arsize = FD_OPTIONAL(m, prefix##_arsize); \
            read.arburst = FD_OPTIONAL(m, prefix##_arburst); \
            read.arvalid = FD_BIT(m, prefix##_arvalid); \
            read.arready = FD_BIT(m, prefix##_arready); \
            read.rdata = FD_REQUIRED(m, prefix##_rdata); \
            read.rid = FD_OPTIONAL(m, prefix##_rid); \
            read.rresp = FD_OPTIONAL(m, prefix##_rresp).value; \
            read.rlast = FD_OPTIONAL(m, prefix##_rlast).value; \
            read.rvalid = FD_BIT(m, prefix##_rvalid); \
            read.rready = FD_BIT(m, prefix##_rready); \
            port.data_bytes = read.rdata.bytes; \
        } \
        if constexpr (requires { m.prefix##_awvalid; }) { \
            fd_write_channels& write = port.write; \
            port.writes = true; \
            write.awaddr = FD_REQUIRED(m, prefix##_awaddr); \
            write.awid = FD_OPTIONAL(m, prefix##_awid); \
            write.awlen = FD_OPTIONAL(m, prefix##_awlen); \
            write.awsize = FD_OPTIONAL(m, prefix##_awsize); \
            write.awburst = FD_OPTIONAL(m, prefix##_awburst); \
            write.awvalid = FD_BIT(m, prefix##_awvalid); \
            write.awready = FD_BIT(m, prefix##_awready); \
            write.wdata = FD_REQUIRED(m, prefix##_wdata); \
            write.wstrb = FD_REQUIRED(m, prefix##_wstrb); \
            write.wlast = FD_OPTIONAL(m, prefix##_wlast).value; \
            write.wvalid = FD_BIT(m, prefix##_wvalid); \
            write.wready = FD_BIT(m, prefix##_wready); \
            write.bid = FD_OPTIONAL(m, prefix##_bid); \
            write.bresp = FD_OPTIONAL(m, prefix##_bresp).value; \
            write.bvalid = FD_BIT(m, prefix##_bvalid); \
            write.bready = FD_BIT(m, prefix##_bready); \
            port.data_bytes = write.wdata.bytes; \
        } \
        static_assert(requires { m.prefix##_arvalid; } || requires { m.prefix##_awvalid; }, \
            "the kernel has no AXI4 master " #prefix); \
        ports.push_back(port); \
    }(model, ports);

namespace fastdelta {

template <class Model>
struct KernelInstance : fd_kernel {
    VerilatedContext context;
    std::unique_ptr<Model> verilated;
    std::vector<fd_memory_port> memory_ports;
#if VM_TRACE_FST
    VerilatedFstC trace;
#endif

    KernelInstance() : fd_kernel{} {
        context.traceEverOn(VM_TRACE);
        verilated = std::make_unique<Model>(&context);
        Model& m = *verilated;
        model = verilated.get();
        clock = FD_BIT(m, ap_clk);
        reset_n = FD_BIT(m, ap_rst_n);
        // Verilator puts a prefix before names that are common words in C++.
        interrupt = FD_OPTIONAL(m, interrupt).value;
        if (!interrupt) interrupt = FD_OPTIONAL(m, __SYM__interrupt).value;
        control.awaddr = FD_REQUIRED(m, s_axi_control_awaddr);
        control.awvalid = FD_BIT(m, s_axi_control_awvalid);
        control.awready = FD_BIT(m, s_axi_control_awready);
        control.wdata = FD_REQUIRED(m, s_axi_control_wdata).value;
        control.wstrb = FD_BIT(m, s_axi_control_wstrb);
        control.wvalid = FD_BIT(m, s_axi_control_wvalid);
        control.wready = FD_BIT(m, s_axi_control_wready);
        control.bresp = FD_BIT(m, s_axi_control_bresp);
        control.bvalid = FD_BIT(m, s_axi_control_bvalid);
        control.bready = FD_BIT(m, s_axi_control_bready);
        control.araddr = FD_REQUIRED(m, s_axi_control_araddr);
        control.arvalid = FD_BIT(m, s_axi_control_arvalid);
        control.arready = FD_BIT(m, s_axi_control_arready);
        control.rdata = FD_REQUIRED(m, s_axi_control_rdata).value;
        control.rresp = FD_BIT(m, s_axi_control_rresp);
        control.rvalid = FD_BIT(m, s_axi_control_rvalid);
        control.rready = FD_BIT(m, s_axi_control_rready);
        evaluate = [](void* verilated_model) { static_cast<Model*>(verilated_model)->eval(); };
        open_trace = [](fd_kernel* kernel, const char* path) { return self(kernel).start_trace(path); };
        dump_trace = [](fd_kernel* kernel, std::uint64_t time) { self(kernel).record(time); };
        destroy = [](fd_kernel* kernel) { delete &self(kernel); };
    }

    ~KernelInstance() {
#if VM_TRACE_FST
        trace.close();
#endif
        verilated->final();
    }

    static KernelInstance& self(fd_kernel* kernel) { return *static_cast<KernelInstance*>(kernel); }

    bool start_trace([[maybe_unused]] const char* path) {
#if VM_TRACE_FST
        if (!trace.isOpen()) verilated->trace(&trace, 99);
        trace.close();
        trace.open(path);
        return trace.isOpen();
#else
        return false;
#endif
    }

    void record([[maybe_unused]] std::uint64_t time) {
#if VM_TRACE_FST
        trace.dump(time);
#endif
    }
};

}  // namespace fastdelta

#define FD_EXPORT __attribute__((visibility("default")))
#define FD_KERNEL(Model, ...) \
    extern "C" { \
    FD_EXPORT std::uint32_t fd_kernel_abi() { return kFdKernelAbi; } \
    FD_EXPORT fd_kernel* fd_kernel_create() { \
        auto* kernel = new fastdelta::KernelInstance<Model>(); \
        [](auto& model, std::vector<fd_memory_port>& ports) { \
            __VA_ARGS__ \
        }(*kernel->verilated, kernel->memory_ports); \
        kernel->ports = kernel->memory_ports.data(); \
        kernel->port_count = static_cast<std::uint32_t>(kernel->memory_ports.size()); \
        return kernel; \
    } \
    }

#endif

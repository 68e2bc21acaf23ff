// SPDX-License-Identifier: Apache-2.0
//
// One compute unit: a Verilated kernel, the memory behind its masters, the bus to its registers,
// its clock and reset, and a queue of commands with a thread that runs them.
#ifndef FASTDELTA_COMPUTE_UNIT_H
#define FASTDELTA_COMPUTE_UNIT_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory_port.h"

namespace fastdelta {

struct UnitOptions {
    MemoryOptions memory;
    std::uint64_t hang_cycles = 1'000'000;
};

// A kernel's shared library and the model made from it.
class Kernel {
public:
    explicit Kernel(const std::string& library);
    ~Kernel();
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;
    fd_kernel* operator->() const { return kernel_; }
    fd_kernel* get() const { return kernel_; }

private:
    void* handle_;
    fd_kernel* kernel_ = nullptr;
};

struct Command {
    fd_command info{};
    std::vector<std::uint32_t> image;
    std::uint64_t timeout_cycles = 0;
    bool ended() const { return info.state != FD_QUEUED && info.state != FD_RUNNING; }
};

// How many commands have ended on a board.
class EndedCount {
public:
    void add(std::int64_t count) {
        {
            const std::lock_guard lock(mutex_);
            count_ += count;
        }
        changed_.notify_all();
    }
    std::int64_t wait_beyond(std::int64_t seen, double seconds) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return count_ > seen; });
        return count_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t count_ = 0;
};

class ComputeUnit {
public:
    // chain: the kernel follows ap_ctrl_chain, otherwise ap_ctrl_hs.
    ComputeUnit(const std::string& library, bool chain, const DeviceMemory& memory, EventLog& log,
                EndedCount& ended, std::uint32_t index);
    ~ComputeUnit();
    ComputeUnit(const ComputeUnit&) = delete;
    ComputeUnit& operator=(const ComputeUnit&) = delete;

    std::vector<std::unique_ptr<MemoryPort>>& ports() { return ports_; }
    MemoryPort& port(int index);

    // What a host thread does to a unit, between two cycles of its clock.
    void configure(const UnitOptions& options);
    void write_register(std::uint32_t offset, std::uint32_t value);
    std::uint32_t read_register(std::uint32_t offset);
    void clock(std::uint64_t cycles);
    void inject(int port, const fd_fault& fault);
    void inject(const fd_unit_fault& fault);
    void clear_faults();
    void connect(int port, int bank);
    fd_port_statistics statistics(int port);
    void clear_statistics();
    void open_trace(const std::string& path);
    std::uint64_t cycles();
    bool hung();

    void submit(std::shared_ptr<Command> command);
    bool wait(const Command& command, double seconds);
    fd_command info(const Command& command);
    bool last(fd_command& command);  // the command that ended last, if there is one
    void reset();    // aborts every command
    void abandon();  // the same without a reset
    void set_busy(bool busy);
    bool busy();

private:
    // Holds the unit between two cycles; the running command lets waiting holders in first.
    class Pause;

    static constexpr std::uint64_t kBusTimeout = 10'000;  // cycles until a register access fails
    static constexpr std::uint64_t kResetCycles = 16;
    static constexpr int kCyclesPerTurn = 256;  // between looks at whether a host thread waits

    void cycle();
    void reset_kernel();
    int bus_write(std::uint32_t offset, std::uint32_t value);  // response, or -1: no answer
    int bus_read(std::uint32_t offset, std::uint32_t& value);
    void log_register(std::uint32_t offset, bool write, int response);

    bool abort_commands();  // says whether one was running; nothing starts until resetting_ is false
    void go_on();
    void begin_faults();
    void end_faults();

    void work();
    void run(Command& command, std::unique_lock<std::mutex>& unit);
    std::uint32_t execute(const Command& command, std::uint64_t& cycles, std::unique_lock<std::mutex>& unit);
    bool enable_interrupt();
    std::uint64_t total(std::uint64_t (MemoryPort::*count)() const) const;

    Kernel kernel_;
    EventLog& log_;
    EndedCount& ended_;
    const std::uint32_t index_;
    const bool chain_;
    UnitOptions options_;
    std::vector<std::unique_ptr<MemoryPort>> ports_;

    std::mutex unit_;                // the model and all below it
    std::atomic<int> waiting_ = 0;   // host threads that want it
    std::uint64_t now_ = 0;          // rising edges so far
    bool hung_ = false;
    bool started_by_host_ = false;   // ap_ctrl_chain: through the register, and not acknowledged since
    bool interrupt_enabled_ = false;
    bool interrupt_ = false;
    std::uint64_t interrupt_since_ = 0;
    bool tracing_ = false;
    struct UnitFault {
        fd_unit_fault rule;
        std::uint64_t matches;
    };
    std::vector<UnitFault> faults_;
    bool dropped_ = false, stuck_ = false, dead_ = false;  // faults of the running command
    std::uint64_t host_control_reads_ = 0;
    struct {                         // control port outputs at the last rising edge
        bool awready, wready, bvalid, arready, rvalid;
        std::uint8_t bresp, rresp;
        std::uint32_t rdata;
    } sampled_{};
    std::uint64_t data_taken_ = 0;   // cycle in which write data was last accepted

    std::mutex queue_mutex_;
    std::condition_variable queue_changed_, command_ended_;
    std::deque<std::shared_ptr<Command>> queue_;  // the front one runs
    std::shared_ptr<Command> last_;
    std::atomic<bool> abort_ = false;
    bool stop_ = false, resetting_ = false, busy_ = false;
    std::thread worker_;
};

}  // namespace fastdelta

#endif

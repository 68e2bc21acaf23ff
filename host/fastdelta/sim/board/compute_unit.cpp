// SPDX-License-Identifier: Apache-2.0
#include "compute_unit.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

namespace fastdelta {

namespace {

constexpr std::uint32_t kControl = 0x0, kGlobalInterruptEnable = 0x4, kInterruptEnable = 0x8, kInterruptStatus = 0xC;
constexpr std::uint32_t kStart = 1u << 0, kDone = 1u << 1, kContinue = 1u << 4;
constexpr std::uint32_t kFirstArgumentWord = 4;

template <class Function>
Function symbol(void* handle, const char* name, const std::string& library) {
    void* address = dlsym(handle, name);
    if (!address) throw std::runtime_error(library + " is not a simulated kernel: it has no " + name);
    return reinterpret_cast<Function>(address);
}

}  // namespace

Kernel::Kernel(const std::string& library) : handle_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw std::runtime_error(std::string("cannot load a simulated kernel: ") + dlerror());
    const auto abi = symbol<std::uint32_t (*)()>(handle_, "fd_kernel_abi", library)();
    if (abi != kFdKernelAbi) {
        throw std::runtime_error(library + " was built for kernel interface " + std::to_string(abi)
                                 + ", this board model has " + std::to_string(kFdKernelAbi) + "; build it again");
    }
    kernel_ = symbol<fd_kernel* (*)()>(handle_, "fd_kernel_create", library)();
}

Kernel::~Kernel() {
    // The library stays loaded: models are made and destroyed often, and its threads' locals live on.
    if (kernel_) kernel_->destroy(kernel_);
}

class ComputeUnit::Pause {
public:
    explicit Pause(ComputeUnit& unit) : unit_(unit) {
        ++unit_.waiting_;
        unit_.unit_.lock();
        --unit_.waiting_;
    }
    ~Pause() { unit_.unit_.unlock(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

private:
    ComputeUnit& unit_;
};

ComputeUnit::ComputeUnit(const std::string& library, bool chain, const DeviceMemory& memory, EventLog& log,
                         EndedCount& ended, std::uint32_t index)
    : kernel_(library), log_(log), ended_(ended), index_(index), chain_(chain) {
    for (std::uint32_t port = 0; port < kernel_->port_count; ++port) {
        ports_.push_back(std::make_unique<MemoryPort>(kernel_->ports[port], memory, log, index, static_cast<std::int32_t>(port)));
    }
    reset_kernel();
}

ComputeUnit::~ComputeUnit() {
    {
        const std::lock_guard lock(queue_mutex_);
        stop_ = true;
        abort_ = true;
    }
    queue_changed_.notify_all();
    if (worker_.joinable()) worker_.join();
}

MemoryPort& ComputeUnit::port(int index) {
    if (index < 0 || static_cast<std::size_t>(index) >= ports_.size()) throw std::out_of_range("no such port");
    return *ports_[static_cast<std::size_t>(index)];
}

// One clock cycle: settle with the inputs of this cycle, take handshakes, rising edge, drive.
void ComputeUnit::cycle() {
    if (dead_) {
        sampled_ = {};
        ++now_;
        return;
    }
    const fd_control_port& control = kernel_->control;
    *kernel_->clock = 0;
    kernel_->evaluate(kernel_->model);
    if (tracing_) kernel_->dump_trace(kernel_.get(), 2 * now_);
    for (auto& port : ports_) port->sample(now_);
    sampled_.awready = *control.awready;
    sampled_.wready = *control.wready;
    sampled_.bvalid = *control.bvalid;
    sampled_.bresp = *control.bresp;
    sampled_.arready = *control.arready;
    sampled_.rvalid = *control.rvalid;
    sampled_.rresp = *control.rresp;
    std::memcpy(&sampled_.rdata, control.rdata, sizeof sampled_.rdata);
    const bool interrupt = kernel_->interrupt && *kernel_->interrupt;
    if (interrupt && !interrupt_) interrupt_since_ = now_;
    interrupt_ = interrupt;
    *kernel_->clock = 1;
    kernel_->evaluate(kernel_->model);
    if (tracing_) kernel_->dump_trace(kernel_.get(), 2 * now_ + 1);
    ++now_;
    for (auto& port : ports_) port->drive(now_);
}

void ComputeUnit::reset_kernel() {
    const fd_control_port& control = kernel_->control;
    end_faults();
    *control.awvalid = *control.wvalid = *control.bready = *control.arvalid = *control.rready = 0;
    *kernel_->reset_n = 0;
    for (std::uint64_t i = 0; i < kResetCycles; ++i) {
        for (auto& port : ports_) port->reset();
        *kernel_->clock = 0;
        kernel_->evaluate(kernel_->model);
        if (tracing_) kernel_->dump_trace(kernel_.get(), 2 * now_);
        *kernel_->clock = 1;
        kernel_->evaluate(kernel_->model);
        if (tracing_) kernel_->dump_trace(kernel_.get(), 2 * now_ + 1);
        ++now_;
    }
    for (auto& port : ports_) port->check_reset(now_);
    *kernel_->reset_n = 1;
    for (auto& port : ports_) port->drive(now_);
    cycle();
    hung_ = false;
    interrupt_enabled_ = false;
    started_by_host_ = false;
}

int ComputeUnit::bus_write(std::uint32_t offset, std::uint32_t value) {
    const fd_control_port& control = kernel_->control;
    std::memcpy(control.awaddr.value, &offset, control.awaddr.bytes);
    std::memcpy(control.wdata, &value, sizeof value);
    *control.wstrb = 0xF;
    *control.awvalid = *control.wvalid = *control.bready = 1;
    int response = -1;
    for (std::uint64_t i = 0; i < kBusTimeout && response < 0; ++i) {
        cycle();
        if (*control.awvalid && sampled_.awready) *control.awvalid = 0;
        if (*control.wvalid && sampled_.wready) {
            *control.wvalid = 0;
            data_taken_ = now_ - 1;
        }
        if (sampled_.bvalid) response = sampled_.bresp;
    }
    *control.awvalid = *control.wvalid = *control.bready = 0;
    return response;
}

int ComputeUnit::bus_read(std::uint32_t offset, std::uint32_t& value) {
    const fd_control_port& control = kernel_->control;
    std::memcpy(control.araddr.value, &offset, control.araddr.bytes);
    *control.arvalid = *control.rready = 1;
    int response = -1;
    for (std::uint64_t i = 0; i < kBusTimeout && response < 0; ++i) {
        cycle();
        if (*control.arvalid && sampled_.arready) *control.arvalid = 0;
        if (sampled_.rvalid) {
            response = sampled_.rresp;
            value = sampled_.rdata;
        }
    }
    *control.arvalid = *control.rready = 0;
    return response;
}

void ComputeUnit::log_register(std::uint32_t offset, bool write, int response) {
    log_.record({FD_REGISTER_ERROR, index_, -1, write, offset, now_, static_cast<std::uint64_t>(response)});
}

void ComputeUnit::configure(const UnitOptions& options) {
    const Pause pause(*this);
    options_ = options;
    for (auto& port : ports_) port->configure(options.memory);
}

namespace {

[[noreturn]] void register_failed(const char* access, std::uint32_t offset, int response) {
    char text[128];
    const char* answer = response < 0 ? "got no answer" : response == 2 ? "was answered SLVERR" : "was answered DECERR";
    std::snprintf(text, sizeof text, "%s of register 0x%03x %s", access, offset, answer);
    throw std::runtime_error(text);
}

}  // namespace

void ComputeUnit::write_register(std::uint32_t offset, std::uint32_t value) {
    const Pause pause(*this);
    const int response = bus_write(offset, value);
    if (response != 0) {
        log_register(offset, true, response);
        register_failed("write", offset, response);
    }
    if (offset == kControl && (value & kStart)) started_by_host_ = chain_;
    if (offset == kControl && (value & kContinue)) started_by_host_ = false;
    // PYNQ's start_sw writes 0 to these.
    if (offset == kGlobalInterruptEnable || offset == kInterruptEnable) interrupt_enabled_ = false;
}

std::uint32_t ComputeUnit::read_register(std::uint32_t offset) {
    const Pause pause(*this);
    std::uint32_t value = 0;
    const int response = bus_read(offset, value);
    if (offset == kControl) ++host_control_reads_;
    if (response == 0) return value;
    log_register(offset, false, response);
    register_failed("read", offset, response);
}

void ComputeUnit::clock(std::uint64_t cycles) {
    const Pause pause(*this);
    for (std::uint64_t i = 0; i < cycles; ++i) cycle();
}

void ComputeUnit::inject(int index, const fd_fault& fault) {
    const Pause pause(*this);
    port(index).inject(fault);
}

void ComputeUnit::inject(const fd_unit_fault& fault) {
    const Pause pause(*this);
    faults_.push_back({fault, 0});
}

void ComputeUnit::clear_faults() {
    const Pause pause(*this);
    faults_.clear();
    end_faults();
    for (auto& port : ports_) port->clear_faults();
}

// Of the faults of the unit, those that strike the command that starts now.
void ComputeUnit::begin_faults() {
    end_faults();
    for (UnitFault& fault : faults_) {
        const std::uint64_t match = fault.matches++;
        if (match < fault.rule.skip || (fault.rule.count != 0 && match - fault.rule.skip >= fault.rule.count)) continue;
        log_.record({FD_INJECTED, index_, -1, 0, 0, now_, fault.rule.kind});
        if (fault.rule.kind == FD_UNIT_DROPPED_INTERRUPT) dropped_ = true;
        else if (fault.rule.kind == FD_UNIT_STUCK) stuck_ = true;
        else dead_ = true;
    }
    for (auto& port : ports_) port->freeze(stuck_);
}

void ComputeUnit::end_faults() {
    dropped_ = stuck_ = dead_ = false;
    for (auto& port : ports_) port->freeze(false);
}

void ComputeUnit::connect(int index, int bank) {
    const Pause pause(*this);
    port(index).connect(bank);
}

fd_port_statistics ComputeUnit::statistics(int index) {
    const Pause pause(*this);
    return port(index).statistics();
}

void ComputeUnit::clear_statistics() {
    const Pause pause(*this);
    for (auto& port : ports_) port->clear_statistics();
}

void ComputeUnit::open_trace(const std::string& path) {
    const Pause pause(*this);
    if (!kernel_->open_trace(kernel_.get(), path.c_str())) {
        throw std::runtime_error("cannot write a trace to " + path + ": the kernel was built without traces, or the folder is missing");
    }
    tracing_ = true;
}

std::uint64_t ComputeUnit::cycles() {
    const Pause pause(*this);
    return now_;
}

bool ComputeUnit::hung() {
    const Pause pause(*this);
    return hung_;
}

void ComputeUnit::submit(std::shared_ptr<Command> command) {
    {
        const std::lock_guard lock(queue_mutex_);
        command->info.state = FD_QUEUED;
        command->info.compute_unit = index_;
        queue_.push_back(std::move(command));
        if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    }
    queue_changed_.notify_all();
}

bool ComputeUnit::wait(const Command& command, double seconds) {
    std::unique_lock lock(queue_mutex_);
    return command_ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return command.ended(); });
}

fd_command ComputeUnit::info(const Command& command) {
    const std::lock_guard lock(queue_mutex_);
    return command.info;
}

bool ComputeUnit::last(fd_command& command) {
    const std::lock_guard lock(queue_mutex_);
    if (!last_) return false;
    command = last_->info;
    return true;
}

bool ComputeUnit::abort_commands() {
    bool running = false;
    {
        std::unique_lock lock(queue_mutex_);
        std::int64_t aborted = 0;
        resetting_ = true;
        running = !queue_.empty() && queue_.front()->info.state == FD_RUNNING;
        while (queue_.size() > (running ? 1u : 0u)) {
            queue_.back()->info.state = FD_ABORTED;
            queue_.pop_back();
            ++aborted;
        }
        if (running) {
            abort_ = true;
            const auto command = queue_.front();
            command_ended_.wait(lock, [&] { return command->ended(); });
            running = command->info.state == FD_ABORTED;
        }
        abort_ = false;
        ended_.add(aborted);
    }
    command_ended_.notify_all();
    return running;
}

void ComputeUnit::go_on() {
    {
        const std::lock_guard lock(queue_mutex_);
        resetting_ = false;
    }
    queue_changed_.notify_all();
}

void ComputeUnit::reset() {
    abort_commands();
    {
        const Pause pause(*this);
        reset_kernel();
    }
    go_on();
}

void ComputeUnit::abandon() {
    if (abort_commands()) {
        const Pause pause(*this);
        hung_ = true;
    }
    go_on();
}

void ComputeUnit::set_busy(bool busy) {
    {
        const std::lock_guard lock(queue_mutex_);
        busy_ = busy;
    }
    queue_changed_.notify_all();
}

bool ComputeUnit::busy() {
    const std::lock_guard lock(queue_mutex_);
    return busy_;
}

void ComputeUnit::work() {
    for (;;) {
        std::shared_ptr<Command> command;
        {
            std::unique_lock lock(queue_mutex_);
            queue_changed_.wait(lock, [&] { return stop_ || (!queue_.empty() && !resetting_ && !busy_); });
            if (stop_) return;
            command = queue_.front();
            command->info.state = FD_RUNNING;
        }
        std::unique_lock unit(unit_);
        run(*command, unit);
    }
}

std::uint64_t ComputeUnit::total(std::uint64_t (MemoryPort::*count)() const) const {
    std::uint64_t sum = 0;
    for (const auto& port : ports_) sum += (port.get()->*count)();
    return sum;
}

void ComputeUnit::run(Command& command, std::unique_lock<std::mutex>& unit) {
    const std::uint64_t violations = total(&MemoryPort::violations);
    const std::uint64_t outside = total(&MemoryPort::outside);
    const std::uint64_t control_reads = host_control_reads_;
    const std::uint64_t unwritten = total(&MemoryPort::unwritten);
    std::uint32_t state = FD_ERROR;
    std::uint64_t cycles = 0;
    // The end of a run that nobody acknowledged would be taken for that of this one.
    if (!hung_ && !started_by_host_) {
        state = execute(command, cycles, unit);
        if (state == FD_TIMED_OUT || state == FD_ERROR) hung_ = true;
    }

    const std::lock_guard lock(queue_mutex_);
    command.info.cycles = cycles;
    command.info.violations = total(&MemoryPort::violations) - violations;
    command.info.outside = total(&MemoryPort::outside) - outside;
    command.info.control_reads = host_control_reads_ - control_reads;
    command.info.unwritten = total(&MemoryPort::unwritten) - unwritten;
    command.info.state = state;
    last_ = queue_.front();
    queue_.pop_front();
    ended_.add(1);
    command_ended_.notify_all();
}

bool ComputeUnit::enable_interrupt() {
    if (interrupt_enabled_) return true;
    interrupt_enabled_ = bus_write(kGlobalInterruptEnable, 1) == 0 && bus_write(kInterruptEnable, 1) == 0;
    return interrupt_enabled_;
}

// Does what XRT's scheduler does with a start packet; returns the final state.
std::uint32_t ComputeUnit::execute(const Command& command, std::uint64_t& cycles,
                                   std::unique_lock<std::mutex>& unit) {
    const bool has_interrupt = kernel_->interrupt != nullptr;
    if (has_interrupt && !enable_interrupt()) return FD_ERROR;
    for (std::uint32_t word = kFirstArgumentWord; word < command.image.size(); ++word) {
        const int response = bus_write(4 * word, command.image[word]);
        if (response < 0) return FD_ERROR;
        if (response > 0) log_register(4 * word, true, response);
    }
    if (bus_write(kControl, kStart) != 0) return FD_ERROR;
    const std::uint64_t start = data_taken_;
    begin_faults();
    std::uint64_t beats = total(&MemoryPort::beats);
    std::uint64_t last_beat = now_;

    for (;;) {
        const bool unseen = stuck_ || dead_ || (dropped_ && has_interrupt);
        for (int i = 0; (has_interrupt || unseen) && i < kCyclesPerTurn && (unseen || !interrupt_); ++i) cycle();
        if (!unseen && (interrupt_ || !has_interrupt)) {
            cycles = interrupt_since_ - start;
            std::uint32_t control = 0;
            for (const auto& port : ports_) {
                if (interrupt_) port->check_done(now_ - 1);
            }
            if (bus_read(kControl, control) != 0) return FD_ERROR;
            if (interrupt_ && bus_write(kInterruptStatus, 1) != 0) return FD_ERROR;
            interrupt_ = false;
            if (control & kDone) {
                if (!has_interrupt) {
                    cycles = now_ - 1 - start;
                    for (const auto& port : ports_) port->check_done(now_ - 1);
                }
                if (chain_ && bus_write(kControl, kContinue) != 0) return FD_ERROR;
                return FD_COMPLETED;
            }
        }
        const std::uint64_t beats_now = total(&MemoryPort::beats);
        if (beats_now != beats) {
            beats = beats_now;
            last_beat = now_;
        }
        const bool hangs = options_.hang_cycles != 0 && now_ - last_beat > options_.hang_cycles;
        if (hangs || (command.timeout_cycles != 0 && now_ - start > command.timeout_cycles)) {
            cycles = now_ - start;
            return FD_TIMED_OUT;
        }
        if (abort_) return FD_ABORTED;
        if (waiting_ > 0) {
            unit.unlock();
            while (waiting_ > 0) std::this_thread::yield();
            unit.lock();
        }
    }
}

}  // namespace fastdelta

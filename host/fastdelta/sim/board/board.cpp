// SPDX-License-Identifier: Apache-2.0
#include "board.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "bank_allocator.h"
#include "compute_unit.h"

using fastdelta::Command;
using fastdelta::ComputeUnit;

struct fd_board {
    fastdelta::DeviceMemory memory;
    fastdelta::EventLog log;
    fastdelta::EndedCount ended;
    fastdelta::UnitOptions options;
    std::vector<std::unique_ptr<ComputeUnit>> units;  // destroyed first: they use the above

    std::mutex mutex;  // the commands and the buffers
    std::vector<fastdelta::BankAllocator> allocators;
    std::map<std::int64_t, std::shared_ptr<Command>> commands;
    std::int64_t next_command = 1;

    ComputeUnit& unit(int index) {
        if (index < 0 || static_cast<std::size_t>(index) >= units.size()) {
            throw std::out_of_range("there is no compute unit " + std::to_string(index));
        }
        return *units[static_cast<std::size_t>(index)];
    }

    std::shared_ptr<Command> command(std::int64_t id) {
        const std::lock_guard lock(mutex);
        const auto found = commands.find(id);
        if (found == commands.end()) throw std::out_of_range("there is no command " + std::to_string(id));
        return found->second;
    }

    const fastdelta::Bank& bank(int index) const {
        if (index < 0 || static_cast<std::size_t>(index) >= memory.banks().size()) {
            throw std::out_of_range("there is no memory bank " + std::to_string(index));
        }
        return memory.banks()[static_cast<std::size_t>(index)];
    }

    fastdelta::BankAllocator& allocator(int index) {
        bank(index);
        return allocators[static_cast<std::size_t>(index)];
    }

    const fastdelta::Bank& bank_of(std::uint64_t address, std::uint64_t count) const {
        const fastdelta::Bank* bank = memory.find(address, count);
        if (!bank) {
            throw std::out_of_range("device memory " + std::to_string(address) + " to " + std::to_string(address + count)
                                    + " is not within one bank");
        }
        return *bank;
    }
};

namespace {

thread_local std::string last_error;

// Runs a function and turns exceptions into -1.
template <class Function>
auto guarded(Function function) -> decltype(function()) {
    try {
        return function();
    } catch (const std::exception& error) {
        last_error = error.what();
    }
    return -1;
}

void apply_option(fastdelta::UnitOptions& options, const std::string& name, double value) {
    static const std::map<std::string, int> stalls = {
        {"stall_ar", fastdelta::kAr}, {"stall_r", fastdelta::kR}, {"stall_aw", fastdelta::kAw},
        {"stall_w", fastdelta::kW}, {"stall_b", fastdelta::kB}};
    const auto whole = [&](std::uint64_t lowest) {
        if (!(value >= static_cast<double>(lowest) && value < 0x1p53)) {
            throw std::invalid_argument(name + " must be at least " + std::to_string(lowest));
        }
        return static_cast<std::uint64_t>(value);
    };
    if (const auto stall = stalls.find(name); stall != stalls.end()) {
        if (!(value >= 0.0 && value <= 1.0)) throw std::invalid_argument(name + " is a probability, 0 to 1");
        options.memory.stall[stall->second] = value;
    } else if (name == "read_latency") {
        options.memory.read_latency = whole(1);
    } else if (name == "write_latency") {
        options.memory.write_latency = whole(1);
    } else if (name == "outstanding") {
        options.memory.outstanding = whole(1);
    } else if (name == "address_waits_for_data") {
        options.memory.address_waits_for_data = whole(0) != 0;
    } else if (name == "report_unwritten") {
        options.memory.report_unwritten = whole(0) != 0;
    } else if (name == "seed") {
        options.memory.seed = whole(0);
    } else if (name == "hang_cycles") {
        options.hang_cycles = whole(0);
    } else {
        throw std::invalid_argument("there is no option " + name);
    }
}

}  // namespace

uint32_t fd_abi_version(void) { return FD_BOARD_ABI; }

const char* fd_last_error(void) { return last_error.c_str(); }

fd_board* fd_board_create(void) { return new fd_board(); }

void fd_board_destroy(fd_board* board) { delete board; }

int fd_add_bank(fd_board* board, uint64_t base, uint64_t bytes) {
    return guarded([&] {
        board->memory.add(base, bytes);
        board->allocators.emplace_back(base, bytes);
        return static_cast<int>(board->memory.banks().size()) - 1;
    });
}

int fd_add_compute_unit(fd_board* board, const char* kernel_library, int chain) {
    return guarded([&] {
        const auto index = static_cast<std::uint32_t>(board->units.size());
        board->units.push_back(std::make_unique<ComputeUnit>(kernel_library, chain != 0, board->memory, board->log, board->ended, index));
        board->units.back()->configure(board->options);
        return static_cast<int>(index);
    });
}

int fd_port_count(fd_board* board, int compute_unit) {
    return guarded([&] { return static_cast<int>(board->unit(compute_unit).ports().size()); });
}

const char* fd_port_name(fd_board* board, int compute_unit, int port) {
    const char* name = nullptr;
    guarded([&] {
        name = board->unit(compute_unit).port(port).signals().name;
        return 0;
    });
    return name;
}

int fd_port_bytes(fd_board* board, int compute_unit, int port) {
    return guarded([&] { return static_cast<int>(board->unit(compute_unit).port(port).signals().data_bytes); });
}

int fd_connect(fd_board* board, int compute_unit, int port, int bank) {
    return guarded([&] {
        board->bank(bank);
        board->unit(compute_unit).connect(port, bank);
        return 0;
    });
}

int fd_set_option(fd_board* board, const char* name, double value) {
    return guarded([&] {
        apply_option(board->options, name, value);
        for (auto& unit : board->units) unit->configure(board->options);
        return 0;
    });
}

int fd_memory_write(fd_board* board, uint64_t address, const void* data, uint64_t bytes) {
    return guarded([&] {
        const fastdelta::Bank& bank = board->bank_of(address, bytes);
        std::copy_n(static_cast<const std::uint8_t*>(data), bytes, bank.data + (address - bank.base));
        bank.mark(address, bytes, true);
        return 0;
    });
}

int fd_memory_read(fd_board* board, uint64_t address, void* data, uint64_t bytes) {
    return guarded([&] {
        const fastdelta::Bank& bank = board->bank_of(address, bytes);
        std::copy_n(bank.data + (address - bank.base), bytes, static_cast<std::uint8_t*>(data));
        return 0;
    });
}

int fd_flip_bit(fd_board* board, uint64_t address, uint32_t bit) {
    return guarded([&] {
        const fastdelta::Bank& bank = board->bank_of(address, 1);
        if (bit > 7) throw std::invalid_argument("a byte has bits 0 to 7");
        bank.data[address - bank.base] ^= static_cast<std::uint8_t>(1u << bit);
        return 0;
    });
}

int fd_allocate(fd_board* board, int index, uint64_t bytes, uint64_t* address) {
    return guarded([&] {
        const fastdelta::Bank& bank = board->bank(index);
        if (bytes == 0) throw std::invalid_argument("a buffer has at least one byte");
        const std::lock_guard lock(board->mutex);
        const auto found = board->allocator(index).allocate(bytes);
        if (!found) return 1;
        bank.mark(*found, fastdelta::BankAllocator::rounded(bytes), false);
        *address = *found;
        return 0;
    });
}

int fd_free(fd_board* board, uint64_t address) {
    return guarded([&] {
        const std::lock_guard lock(board->mutex);
        for (auto& allocator : board->allocators) {
            if (allocator.holds(address) && allocator.release(address)) return 0;
        }
        throw std::invalid_argument("there is no buffer at " + std::to_string(address));
    });
}

int fd_usage(fd_board* board, int index, fd_bank_usage* usage) {
    return guarded([&] {
        const fastdelta::Bank& bank = board->bank(index);
        const std::lock_guard lock(board->mutex);
        const auto& allocator = board->allocator(index);
        *usage = {bank.bytes, allocator.used(), allocator.count(), allocator.largest()};
        return 0;
    });
}

int fd_limit_bank(fd_board* board, int index, uint64_t bytes) {
    return guarded([&] {
        board->bank(index);
        const std::lock_guard lock(board->mutex);
        board->allocator(index).limit(bytes);
        return 0;
    });
}

int fd_register_write(fd_board* board, int compute_unit, uint32_t offset, uint32_t value) {
    return guarded([&] {
        board->unit(compute_unit).write_register(offset, value);
        return 0;
    });
}

int fd_register_read(fd_board* board, int compute_unit, uint32_t offset, uint32_t* value) {
    return guarded([&] {
        *value = board->unit(compute_unit).read_register(offset);
        return 0;
    });
}

int64_t fd_submit(fd_board* board, int compute_unit, const uint32_t* image, uint32_t words, uint64_t timeout_cycles) {
    return guarded([&]() -> std::int64_t {
        ComputeUnit& unit = board->unit(compute_unit);
        auto command = std::make_shared<Command>();
        command->image.assign(image, image + words);
        command->timeout_cycles = timeout_cycles;
        std::int64_t id = 0;
        {
            const std::lock_guard lock(board->mutex);
            id = board->next_command++;
            board->commands.emplace(id, command);
        }
        unit.submit(std::move(command));
        return id;
    });
}

int fd_wait(fd_board* board, int64_t id, double seconds) {
    return guarded([&] {
        const auto command = board->command(id);
        return board->unit(static_cast<int>(command->info.compute_unit)).wait(*command, seconds) ? 1 : 0;
    });
}

int64_t fd_wait_any(fd_board* board, int64_t seen, double seconds) { return board->ended.wait_beyond(seen, seconds); }

int fd_command_info(fd_board* board, int64_t id, fd_command* info) {
    return guarded([&] {
        const auto command = board->command(id);
        *info = board->unit(static_cast<int>(command->info.compute_unit)).info(*command);
        return 0;
    });
}

int fd_command_take(fd_board* board, int64_t id, fd_command* info) {
    return guarded([&] {
        if (fd_command_info(board, id, info) != 0) return -1;
        if (info->state == FD_QUEUED || info->state == FD_RUNNING) return 0;
        const std::lock_guard lock(board->mutex);
        board->commands.erase(id);
        return 1;
    });
}

int fd_last_command(fd_board* board, int compute_unit, fd_command* info) {
    return guarded([&] { return board->unit(compute_unit).last(*info) ? 1 : 0; });
}

int fd_abandon(fd_board* board, int compute_unit) {
    return guarded([&] {
        board->unit(compute_unit).abandon();
        return 0;
    });
}

int fd_kill_client(fd_board* board) {
    return guarded([&] {
        for (auto& unit : board->units) unit->abandon();
        const std::lock_guard lock(board->mutex);
        for (auto& allocator : board->allocators) allocator.release_all();
        return 0;
    });
}

int fd_set_busy(fd_board* board, int compute_unit, int busy) {
    return guarded([&] {
        board->unit(compute_unit).set_busy(busy != 0);
        return 0;
    });
}

int fd_is_busy(fd_board* board, int compute_unit) {
    return guarded([&] { return board->unit(compute_unit).busy() ? 1 : 0; });
}

int fd_reset(fd_board* board, int compute_unit) {
    return guarded([&] {
        board->unit(compute_unit).reset();
        return 0;
    });
}

int fd_clock(fd_board* board, int compute_unit, uint64_t cycles) {
    return guarded([&] {
        board->unit(compute_unit).clock(cycles);
        return 0;
    });
}

int fd_is_hung(fd_board* board, int compute_unit) {
    return guarded([&] { return board->unit(compute_unit).hung() ? 1 : 0; });
}

int64_t fd_cycles(fd_board* board, int compute_unit) {
    return guarded([&] { return static_cast<std::int64_t>(board->unit(compute_unit).cycles()); });
}

int fd_statistics(fd_board* board, int compute_unit, int port, fd_port_statistics* statistics) {
    return guarded([&] {
        *statistics = board->unit(compute_unit).statistics(port);
        return 0;
    });
}

int fd_clear_statistics(fd_board* board, int compute_unit) {
    return guarded([&] {
        board->unit(compute_unit).clear_statistics();
        return 0;
    });
}

int64_t fd_event_count(fd_board* board) { return static_cast<std::int64_t>(board->log.count()); }

int fd_event_get(fd_board* board, int64_t index, fd_event* event) {
    return index >= 0 && board->log.get(static_cast<std::size_t>(index), *event) ? 1 : 0;
}

int fd_clear_events(fd_board* board) {
    board->log.clear();
    return 0;
}

int fd_inject(fd_board* board, int compute_unit, int port, const fd_fault* fault) {
    return guarded([&] {
        if (fault->kind < FD_FAULT_SLVERR || fault->kind > FD_FAULT_FLIP) throw std::invalid_argument("there is no such fault");
        board->unit(compute_unit).inject(port, *fault);
        return 0;
    });
}

int fd_inject_unit(fd_board* board, int compute_unit, const fd_unit_fault* fault) {
    return guarded([&] {
        if (fault->kind < FD_UNIT_DROPPED_INTERRUPT || fault->kind > FD_UNIT_DEAD) throw std::invalid_argument("there is no such fault");
        board->unit(compute_unit).inject(*fault);
        return 0;
    });
}

int fd_clear_faults(fd_board* board, int compute_unit) {
    return guarded([&] {
        board->unit(compute_unit).clear_faults();
        return 0;
    });
}

int fd_open_trace(fd_board* board, int compute_unit, const char* path) {
    return guarded([&] {
        board->unit(compute_unit).open_trace(path);
        return 0;
    });
}

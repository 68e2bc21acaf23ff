// SPDX-License-Identifier: Apache-2.0
//
// The memory behind one AXI4 master of a kernel: an AXI4 slave with a fixed latency, one beat a
// cycle in each direction, several bursts outstanding, answers in order.
//
// Timing: the first beat of a read can be taken read_latency cycles after its address was
// accepted, a write is answered write_latency cycles after its last beat. Writes reach device
// memory with their response, so that a unit that is done too early shows.
#ifndef FASTDELTA_MEMORY_PORT_H
#define FASTDELTA_MEMORY_PORT_H

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "board.h"
#include "device_memory.h"
#include "kernel_abi.h"

namespace fastdelta {

enum Channel { kAr, kR, kAw, kW, kB, kChannels };

struct MemoryOptions {
    std::uint64_t read_latency = 64;
    std::uint64_t write_latency = 16;
    std::uint64_t outstanding = 32;
    bool address_waits_for_data = false;
    bool report_unwritten = false;
    double stall[kChannels] = {};
    std::uint64_t seed = 0;
};

class EventLog {
public:
    static constexpr std::size_t kKept = 1000;

    void record(const fd_event& event);
    std::uint64_t count() const;
    bool get(std::size_t index, fd_event& event) const;
    void clear();

private:
    mutable std::mutex mutex_;
    std::vector<fd_event> events_;
    std::uint64_t count_ = 0;
};

// Stalls of one channel: splitmix64, one draw a cycle in which the channel could move.
class Staller {
public:
    void set(double probability, std::uint64_t seed) {
        always_ = probability >= 1.0;
        threshold_ = probability <= 0.0 ? 0 : static_cast<std::uint64_t>(probability * 0x1p63) * 2;
        state_ = seed;
    }
    bool stalls() {
        if (threshold_ == 0) return always_;
        state_ += 0x9E3779B97F4A7C15u;
        std::uint64_t value = state_;
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
        value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
        return (value ^ (value >> 31)) < threshold_ || always_;
    }

private:
    std::uint64_t threshold_ = 0;
    std::uint64_t state_ = 0;
    bool always_ = false;
};

class MemoryPort {
public:
    MemoryPort(const fd_memory_port& signals, const DeviceMemory& memory, EventLog& log,
               std::uint32_t unit, std::int32_t index);

    void connect(int bank) { connected_.push_back(bank); }
    void configure(const MemoryOptions& options);

    // Reset drives every valid and ready low and forgets bursts in flight.
    void reset();
    void check_reset(std::uint64_t now);

    // Before a rising edge: take the handshakes of cycle `now`. After it: drive the next cycle.
    void sample(std::uint64_t now) {
        if (signals_.reads) sample_read(now);
        if (signals_.writes) sample_write(now);
    }
    void drive(std::uint64_t now) {
        if (signals_.reads) drive_read(now);
        if (signals_.writes) drive_write(now);
    }

    std::uint64_t beats() const { return beats_; }  // handshakes on all channels
    std::uint64_t violations() const { return violations_; }
    std::uint64_t outside() const { return outside_; }
    std::uint64_t unwritten() const { return unwritten_; }
    void check_done(std::uint64_t now);

    void inject(const fd_fault& fault) { faults_.push_back({fault, 0}); }
    void clear_faults();
    void freeze(bool frozen) { frozen_ = frozen; }  // nothing new is accepted or answered

    const fd_port_statistics& statistics() const { return statistics_; }
    void clear_statistics() { statistics_ = {}; }
    const fd_memory_port& signals() const { return signals_; }

private:
    struct Burst {
        std::uint64_t address, id, due;
        const Bank* bank;    // null: answered with an error
        std::uint8_t* data;  // in device memory
        std::uint32_t beats, done;
        std::uint8_t response;
        bool stuck;
        std::uint64_t flip;  // bit of the burst that is wrong, or kNoFlip
        std::vector<std::uint8_t> written, strobes;  // writes only
    };
    struct Address {
        std::uint64_t address = 0, id = 0;
        std::uint8_t length = 0, size = 0, burst = 0;
        bool operator==(const Address&) const = default;
    };
    static constexpr std::uint64_t kNoFlip = ~std::uint64_t{0};
    struct Fault {
        fd_fault rule;
        std::uint64_t matches;
    };

    void sample_read(std::uint64_t now);
    void sample_write(std::uint64_t now);
    void drive_read(std::uint64_t now);
    void drive_write(std::uint64_t now);

    void accept(Burst& burst, const Address& address, bool write, std::uint64_t now);
    void commit(Burst& burst);
    bool stalls(Channel channel) { return frozen_ || stallers_[channel].stalls(); }
    void record(std::uint32_t kind, bool write, std::uint64_t address, std::uint64_t now,
                std::uint64_t detail);

    template <class Channels>
    static Address read_address(const Channels& channels);

    fd_memory_port signals_;
    const DeviceMemory& memory_;
    EventLog& log_;
    std::uint32_t unit_;
    std::int32_t index_;
    std::uint32_t bytes_;         // of a beat
    std::uint32_t strobe_bytes_;  // of the strobes of a beat
    std::uint8_t size_;           // AxSIZE of a full beat
    std::vector<int> connected_;
    MemoryOptions options_;
    Staller stallers_[kChannels];
    std::vector<Fault> faults_;
    bool frozen_ = false;

    std::deque<Burst> reads_;
    bool read_ready_ = false, read_valid_ = false;
    bool read_waits_ = false;  // the kernel waits with an address
    Address read_waiting_;

    std::deque<Burst> writes_;        // accepted addresses, in order
    std::size_t writes_complete_ = 0; // of them, those with all data
    std::vector<Burst> spare_;        // keeps the buffers of ended bursts
    bool write_ready_ = false, data_ready_ = false, response_valid_ = false;
    bool write_waits_ = false, data_waits_ = false;
    Address write_waiting_;
    std::vector<std::uint8_t> data_waiting_;

    std::uint64_t beats_ = 0, violations_ = 0, outside_ = 0, unwritten_ = 0;
    fd_port_statistics statistics_{};
};

}  // namespace fastdelta

#endif

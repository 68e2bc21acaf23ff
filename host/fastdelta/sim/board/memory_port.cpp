// SPDX-License-Identifier: Apache-2.0
#include "memory_port.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fastdelta {

namespace {

constexpr std::uint8_t kOkay = 0;
constexpr std::uint8_t kDecodeError = 3;
constexpr std::uint8_t kIncrementing = 1;
constexpr std::uint8_t kGarbage = 0xA5;  // read data of a failed read: wrong on purpose

std::uint64_t value_of(const fd_signal& signal) {
    std::uint64_t value = 0;
    std::memcpy(&value, signal.value, std::min<std::size_t>(signal.bytes, sizeof value));
    return value;
}

void assign(const fd_signal& signal, std::uint64_t value) {
    if (signal.value) std::memcpy(signal.value, &value, std::min<std::size_t>(signal.bytes, sizeof value));
}

void assign(std::uint8_t* signal, std::uint8_t value) {
    if (signal) *signal = value;
}

}  // namespace

void EventLog::record(const fd_event& event) {
    const std::lock_guard lock(mutex_);
    ++count_;
    if (events_.size() < kKept) events_.push_back(event);
}

std::uint64_t EventLog::count() const {
    const std::lock_guard lock(mutex_);
    return count_;
}

bool EventLog::get(std::size_t index, fd_event& event) const {
    const std::lock_guard lock(mutex_);
    if (index >= events_.size()) return false;
    event = events_[index];
    return true;
}

void EventLog::clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
    count_ = 0;
}

MemoryPort::MemoryPort(const fd_memory_port& signals, const DeviceMemory& memory, EventLog& log,
                       std::uint32_t unit, std::int32_t index)
    : signals_(signals), memory_(memory), log_(log), unit_(unit), index_(index),
      bytes_(signals.data_bytes), strobe_bytes_((bytes_ + 7) / 8),
      size_(static_cast<std::uint8_t>(std::countr_zero(bytes_))), data_waiting_(bytes_) {
    configure({});
    reset();
}

void MemoryPort::configure(const MemoryOptions& options) {
    options_ = options;
    for (int channel = 0; channel < kChannels; ++channel) {
        // Far apart in the generator's sequence, whatever the seed.
        const std::uint64_t stream = (std::uint64_t{unit_} * 64 + static_cast<std::uint32_t>(index_)) * 8 + channel + 1;
        stallers_[channel].set(options.stall[channel], (options.seed + 1) * 0xD1342543DE82EF95u ^ stream << 40);
    }
}

void MemoryPort::reset() {
    reads_.clear();
    writes_.clear();
    writes_complete_ = 0;
    read_ready_ = read_valid_ = write_ready_ = data_ready_ = response_valid_ = false;
    read_waits_ = write_waits_ = data_waits_ = false;
    if (signals_.reads) {
        assign(signals_.read.arready, 0);
        assign(signals_.read.rvalid, 0);
    }
    if (signals_.writes) {
        assign(signals_.write.awready, 0);
        assign(signals_.write.wready, 0);
        assign(signals_.write.bvalid, 0);
    }
}

void MemoryPort::check_reset(std::uint64_t now) {
    if (signals_.reads && *signals_.read.arvalid) record(FD_VALID_IN_RESET, false, 0, now, 0);
    if (signals_.writes && *signals_.write.awvalid) record(FD_VALID_IN_RESET, true, 0, now, 0);
    if (signals_.writes && *signals_.write.wvalid) record(FD_VALID_IN_RESET, true, 0, now, 1);
}

void MemoryPort::check_done(std::uint64_t now) {
    const auto unanswered = std::count_if(writes_.begin(), writes_.end(), [](const Burst& burst) { return !burst.stuck; });
    const bool stuck = static_cast<std::size_t>(unanswered) != writes_.size();
    if (unanswered && !stuck) record(FD_DONE_TOO_EARLY, true, writes_.front().address, now, unanswered);
}

void MemoryPort::clear_faults() {
    faults_.clear();
    for (Burst& burst : reads_) burst.stuck = false;
    for (Burst& burst : writes_) burst.stuck = false;
}

void MemoryPort::record(std::uint32_t kind, bool write, std::uint64_t address, std::uint64_t now,
                        std::uint64_t detail) {
    if (kind >= FD_PROTOCOL_FIRST) ++violations_;
    if (kind == FD_OUTSIDE_BANKS) ++outside_;
    if (kind == FD_UNWRITTEN) ++unwritten_;
    log_.record({kind, unit_, index_, write, address, now, detail});
}

template <class Channels>
MemoryPort::Address MemoryPort::read_address(const Channels& channels) {
    Address address;
    if constexpr (requires { channels.araddr; }) {
        address.address = value_of(channels.araddr);
        address.id = channels.arid.value ? value_of(channels.arid) : 0;
        address.length = channels.arlen.value ? *channels.arlen.value : 0;
        address.size = channels.arsize.value ? *channels.arsize.value : 0xFF;
        address.burst = channels.arburst.value ? *channels.arburst.value : kIncrementing;
    } else {
        address.address = value_of(channels.awaddr);
        address.id = channels.awid.value ? value_of(channels.awid) : 0;
        address.length = channels.awlen.value ? *channels.awlen.value : 0;
        address.size = channels.awsize.value ? *channels.awsize.value : 0xFF;
        address.burst = channels.awburst.value ? *channels.awburst.value : kIncrementing;
    }
    return address;
}

// Checks an accepted address and says how the burst will be answered.
void MemoryPort::accept(Burst& burst, const Address& address, bool write, std::uint64_t now) {
    burst.address = address.address;
    burst.id = address.id;
    burst.beats = address.length + 1u;
    burst.done = 0;
    burst.response = kOkay;
    burst.stuck = false;
    burst.flip = kNoFlip;
    burst.bank = nullptr;
    burst.data = nullptr;

    const std::uint64_t count = std::uint64_t{burst.beats} * bytes_;
    const std::uint64_t last = address.address + count - 1;
    if ((address.address ^ last) >> 12) record(FD_CROSSES_4K, write, address.address, now, count);
    if (address.burst != kIncrementing) record(FD_BURST_TYPE, write, address.address, now, address.burst);
    if (address.size != size_ && address.size != 0xFF) record(FD_BURST_SIZE, write, address.address, now, address.size);
    if (address.address % bytes_) record(FD_UNALIGNED, write, address.address, now, 0);

    for (const int index : connected_) {
        const Bank& bank = memory_.banks()[static_cast<std::size_t>(index)];
        if (bank.holds(address.address, count)) {
            burst.bank = &bank;
            burst.data = bank.data + (address.address - bank.base);
            break;
        }
    }
    if (!burst.bank) {
        burst.response = kDecodeError;
        record(FD_OUTSIDE_BANKS, write, address.address, now, count);
    } else if (options_.report_unwritten && !write) {
        const std::uint64_t lines = burst.bank->unwritten_lines(address.address, count);
        if (lines) record(FD_UNWRITTEN, write, address.address, now, lines);
    }
    for (Fault& fault : faults_) {
        const fd_fault& rule = fault.rule;
        if ((rule.write != 0) != write || address.address > rule.last_address || last < rule.first_address) continue;
        const std::uint64_t match = fault.matches++;
        if (match < rule.skip || (rule.count != 0 && match - rule.skip >= rule.count)) continue;
        record(FD_INJECTED, write, address.address, now, rule.kind);
        if (rule.kind == FD_FAULT_STUCK) {
            burst.stuck = true;
        } else if (rule.kind == FD_FAULT_FLIP) {
            burst.flip = rule.bit % (8 * count);
        } else {
            burst.response = static_cast<std::uint8_t>(rule.kind);
            burst.bank = nullptr;
        }
        break;
    }
}

void MemoryPort::sample_read(std::uint64_t now) {
    const fd_read_channels& port = signals_.read;
    const bool valid = *port.arvalid;
    if (valid || read_waits_) {
        const Address address = read_address(port);
        if (read_waits_ && (!valid || !(address == read_waiting_))) {
            record(FD_UNSTABLE_ADDRESS, false, read_waiting_.address, now, valid);
        }
        if (valid && read_ready_) {
            ++beats_;
            reads_.emplace_back();
            accept(reads_.back(), address, false, now);
            reads_.back().due = now + options_.read_latency;
            ++statistics_.read_bursts;
            statistics_.max_reads_outstanding = std::max<std::uint64_t>(statistics_.max_reads_outstanding, reads_.size());
        } else if (valid) {
            ++statistics_.read_address_stalls;
            read_waiting_ = address;
        }
        read_waits_ = valid && !read_ready_;
    }
    if (read_valid_) {
        if (*port.rready) {
            ++beats_;
            ++statistics_.read_beats;
            statistics_.read_bytes += bytes_;
            read_valid_ = false;
            Burst& burst = reads_.front();
            if (++burst.done == burst.beats) reads_.pop_front();
        } else {
            ++statistics_.read_data_stalls;
        }
    }
}

void MemoryPort::drive_read(std::uint64_t now) {
    const fd_read_channels& port = signals_.read;
    read_ready_ = reads_.size() < options_.outstanding && !stalls(kAr);
    assign(port.arready, read_ready_);
    if (read_valid_) return;  // the beat waits for the kernel
    if (reads_.empty() || reads_.front().due > now || reads_.front().stuck || stalls(kR)) {
        assign(port.rvalid, 0);
        return;
    }
    const Burst& burst = reads_.front();
    if (burst.bank) std::memcpy(port.rdata.value, burst.data + std::size_t{burst.done} * bytes_, bytes_);
    else std::memset(port.rdata.value, kGarbage, bytes_);
    if (burst.flip / 8 / bytes_ == burst.done) port.rdata.value[burst.flip / 8 % bytes_] ^= 1u << burst.flip % 8;
    assign(port.rid, burst.id);
    assign(port.rresp, burst.response);
    assign(port.rlast, burst.done + 1 == burst.beats);
    assign(port.rvalid, 1);
    read_valid_ = true;
}

void MemoryPort::sample_write(std::uint64_t now) {
    const fd_write_channels& port = signals_.write;
    const bool valid = *port.awvalid;
    if (valid || write_waits_) {
        const Address address = read_address(port);
        if (write_waits_ && (!valid || !(address == write_waiting_))) {
            record(FD_UNSTABLE_ADDRESS, true, write_waiting_.address, now, valid);
        }
        if (valid && write_ready_) {
            ++beats_;
            if (spare_.empty()) {
                writes_.emplace_back();
            } else {
                writes_.push_back(std::move(spare_.back()));
                spare_.pop_back();
            }
            Burst& burst = writes_.back();
            accept(burst, address, true, now);
            burst.written.resize(std::size_t{burst.beats} * bytes_);
            burst.strobes.resize(std::size_t{burst.beats} * strobe_bytes_);
            ++statistics_.write_bursts;
            statistics_.max_writes_outstanding = std::max<std::uint64_t>(statistics_.max_writes_outstanding, writes_.size());
        } else if (valid) {
            ++statistics_.write_address_stalls;
            write_waiting_ = address;
        }
        write_waits_ = valid && !write_ready_;
    }

    const bool data_valid = *port.wvalid;
    if (data_waits_ && (!data_valid || std::memcmp(data_waiting_.data(), port.wdata.value, bytes_) != 0)) {
        const std::uint64_t address = writes_complete_ < writes_.size() ? writes_[writes_complete_].address : 0;
        record(FD_UNSTABLE_DATA, true, address, now, data_valid);
    }
    if (data_valid && data_ready_) {
        ++beats_;
        ++statistics_.write_beats;
        Burst& burst = writes_[writes_complete_];
        std::memcpy(&burst.written[std::size_t{burst.done} * bytes_], port.wdata.value, bytes_);
        std::uint64_t strobes = 0;
        for (std::uint32_t at = 0; at < strobe_bytes_; at += 8) {
            std::uint64_t part = 0;
            std::memcpy(&part, port.wstrb.value + at, std::min<std::uint32_t>(8, strobe_bytes_ - at));
            strobes += static_cast<std::uint64_t>(std::popcount(part));
        }
        std::memcpy(&burst.strobes[std::size_t{burst.done} * strobe_bytes_], port.wstrb.value, strobe_bytes_);
        statistics_.write_bytes += strobes;
        ++burst.done;
        const bool last = burst.done == burst.beats;
        if (port.wlast && (*port.wlast != 0) != last) record(FD_WRONG_LAST, true, burst.address, now, burst.done - 1);
        if (last) {
            burst.due = now + options_.write_latency;
            ++writes_complete_;
        }
    } else if (data_valid) {
        ++statistics_.write_data_stalls;
        std::memcpy(data_waiting_.data(), port.wdata.value, bytes_);
    }
    data_waits_ = data_valid && !data_ready_;

    if (response_valid_) {
        if (*port.bready) {
            ++beats_;
            response_valid_ = false;
            spare_.push_back(std::move(writes_.front()));
            writes_.pop_front();
            --writes_complete_;
        } else {
            ++statistics_.write_response_stalls;
        }
    }
}

void MemoryPort::drive_write(std::uint64_t now) {
    const fd_write_channels& port = signals_.write;
    write_ready_ = writes_.size() < options_.outstanding && (!options_.address_waits_for_data || data_waits_)
        && !stalls(kAw);
    assign(port.awready, write_ready_);
    data_ready_ = writes_complete_ < writes_.size() && !stalls(kW);
    assign(port.wready, data_ready_);
    if (response_valid_) return;
    if (writes_complete_ == 0 || writes_.front().due > now || writes_.front().stuck || stalls(kB)) {
        assign(port.bvalid, 0);
        return;
    }
    Burst& burst = writes_.front();
    if (burst.bank) commit(burst);
    assign(port.bid, burst.id);
    assign(port.bresp, burst.response);
    assign(port.bvalid, 1);
    response_valid_ = true;
}

void MemoryPort::commit(Burst& burst) {
    if (burst.flip != kNoFlip) burst.written[burst.flip / 8] ^= 1u << burst.flip % 8;
    burst.bank->mark(burst.address, std::uint64_t{burst.beats} * bytes_, true);
    for (std::uint32_t beat = 0; beat < burst.beats; ++beat) {
        const std::uint8_t* strobes = &burst.strobes[std::size_t{beat} * strobe_bytes_];
        const std::uint8_t* from = &burst.written[std::size_t{beat} * bytes_];
        std::uint8_t* to = burst.data + std::size_t{beat} * bytes_;
        for (std::uint32_t at = 0; at < bytes_; at += 8) {
            const std::uint32_t count = std::min<std::uint32_t>(8, bytes_ - at);
            const std::uint8_t all = static_cast<std::uint8_t>((1u << count) - 1);
            const std::uint8_t mask = strobes[at / 8] & all;
            if (mask == all) {
                std::memcpy(to + at, from + at, count);
            } else {
                for (std::uint32_t i = 0; i < count; ++i) {
                    if (mask >> i & 1) to[at + i] = from[at + i];
                }
            }
        }
    }
}

}  // namespace fastdelta

// SPDX-License-Identifier: Apache-2.0
//
// Device memory in banks. Pages take host memory when they are first touched, so 16 GiB of HBM
// cost nothing until used. Beside the bytes it is known which lines of 64 bytes were written since
// they were allocated, so that a forgotten copy to the card can be seen.
#ifndef FASTDELTA_DEVICE_MEMORY_H
#define FASTDELTA_DEVICE_MEMORY_H

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace fastdelta {

constexpr std::uint64_t kLineBytes = 64;

struct Bank {
    std::uint64_t base, bytes;
    std::uint8_t* data;
    std::uint64_t* written;  // a bit for each line

    bool holds(std::uint64_t address, std::uint64_t count) const {
        return address >= base && count <= bytes && address - base <= bytes - count;
    }

    void mark(std::uint64_t address, std::uint64_t count, bool is_written) const {
        for_words(address, count, [is_written](std::atomic_ref<std::uint64_t> word, std::uint64_t mask) {
            if (is_written) word.fetch_or(mask, std::memory_order_relaxed);
            else word.fetch_and(~mask, std::memory_order_relaxed);
        });
    }

    std::uint64_t unwritten_lines(std::uint64_t address, std::uint64_t count) const {
        std::uint64_t lines = 0;
        for_words(address, count, [&lines](std::atomic_ref<std::uint64_t> word, std::uint64_t mask) {
            lines += static_cast<std::uint64_t>(std::popcount(mask & ~word.load(std::memory_order_relaxed)));
        });
        return lines;
    }

    std::uint64_t map_bytes() const { return (bytes / kLineBytes / 64 + 1) * sizeof(std::uint64_t); }

private:
    // Calls function(word, mask) for the bits of the lines that the bytes touch. Units write
    // beside each other, so words are accessed atomically.
    template <class Function>
    void for_words(std::uint64_t address, std::uint64_t count, Function function) const {
        if (count == 0) return;
        const std::uint64_t end = (address - base + count - 1) / kLineBytes + 1;
        for (std::uint64_t line = (address - base) / kLineBytes; line < end;) {
            const std::uint64_t bits = std::min<std::uint64_t>(64 - line % 64, end - line);
            const std::uint64_t mask = (bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1) << line % 64;
            function(std::atomic_ref(written[line / 64]), mask);
            line += bits;
        }
    }
};

class DeviceMemory {
public:
    DeviceMemory() = default;
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory() {
        for (const Bank& bank : banks_) {
            munmap(bank.data, bank.bytes);
            munmap(bank.written, bank.map_bytes());
        }
    }

    void add(std::uint64_t base, std::uint64_t bytes) {
        if (bytes == 0 || base + bytes < base) throw std::invalid_argument("a bank needs a size");
        for (const Bank& bank : banks_) {
            if (base < bank.base + bank.bytes && bank.base < base + bytes) {
                throw std::invalid_argument("memory banks overlap");
            }
        }
        Bank bank{base, bytes, nullptr, nullptr};
        bank.data = static_cast<std::uint8_t*>(reserve(bytes));
        bank.written = static_cast<std::uint64_t*>(reserve(bank.map_bytes()));
        banks_.push_back(bank);
    }

    const std::vector<Bank>& banks() const { return banks_; }

    // The bank that holds all of `count` bytes, or null.
    const Bank* find(std::uint64_t address, std::uint64_t count) const {
        for (const Bank& bank : banks_) {
            if (bank.holds(address, count)) return &bank;
        }
        return nullptr;
    }

private:
    static void* reserve(std::uint64_t bytes) {
        void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) throw std::runtime_error("no address space for a memory bank");
        return data;
    }

    std::vector<Bank> banks_;
};

}  // namespace fastdelta

#endif

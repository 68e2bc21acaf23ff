// SPDX-License-Identifier: Apache-2.0
//
// Device memory in banks. Pages take host memory when they are first touched, so 16 GiB of HBM
// cost nothing until used.
#ifndef FASTDELTA_DEVICE_MEMORY_H
#define FASTDELTA_DEVICE_MEMORY_H

#include <sys/mman.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace fastdelta {

struct Bank {
    std::uint64_t base, bytes;
    std::uint8_t* data;

    bool holds(std::uint64_t address, std::uint64_t count) const {
        return address >= base && count <= bytes && address - base <= bytes - count;
    }
};

class DeviceMemory {
public:
    DeviceMemory() = default;
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory() {
        for (const Bank& bank : banks_) munmap(bank.data, bank.bytes);
    }

    void add(std::uint64_t base, std::uint64_t bytes) {
        if (bytes == 0 || base + bytes < base) throw std::invalid_argument("a bank needs a size");
        for (const Bank& bank : banks_) {
            if (base < bank.base + bank.bytes && bank.base < base + bytes) {
                throw std::invalid_argument("memory banks overlap");
            }
        }
        void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) throw std::runtime_error("no address space for a memory bank");
        banks_.push_back({base, bytes, static_cast<std::uint8_t*>(data)});
    }

    const std::vector<Bank>& banks() const { return banks_; }

    // Pointer to `count` bytes within one bank, or null.
    std::uint8_t* find(std::uint64_t address, std::uint64_t count) const {
        for (const Bank& bank : banks_) {
            if (bank.holds(address, count)) return bank.data + (address - bank.base);
        }
        return nullptr;
    }

private:
    std::vector<Bank> banks_;
};

}  // namespace fastdelta

#endif

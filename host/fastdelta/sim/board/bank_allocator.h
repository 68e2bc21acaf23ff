// SPDX-License-Identifier: Apache-2.0
//
// Which parts of one memory bank are taken: first fit, in whole pages of the host.
#ifndef FASTDELTA_BANK_ALLOCATOR_H
#define FASTDELTA_BANK_ALLOCATOR_H

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace fastdelta {

constexpr std::uint64_t kBufferAlignment = 4096;

class BankAllocator {
public:
    BankAllocator(std::uint64_t base, std::uint64_t bytes) : base_(base), bytes_(bytes), limit_(bytes) {
        free_.emplace(base, bytes);
    }

    static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }

    bool holds(std::uint64_t address) const { return address >= base_ && address - base_ < bytes_; }

    std::optional<std::uint64_t> allocate(std::uint64_t bytes) {
        if (bytes == 0 || bytes > bytes_) return {};
        bytes = rounded(bytes);
        if (used_ + bytes > limit_) return {};
        for (const auto& [start, space] : free_) {
            if (space < bytes) continue;
            const std::uint64_t address = start;
            const std::uint64_t rest = space - bytes;
            free_.erase(address);
            if (rest) free_.emplace(address + bytes, rest);
            taken_.emplace(address, bytes);
            used_ += bytes;
            return address;
        }
        return {};
    }

    bool release(std::uint64_t address) {
        const auto found = taken_.find(address);
        if (found == taken_.end()) return false;
        std::uint64_t bytes = found->second;
        taken_.erase(found);
        used_ -= bytes;
        auto after = free_.lower_bound(address);
        if (after != free_.end() && after->first == address + bytes) {
            bytes += after->second;
            after = free_.erase(after);
        }
        if (after != free_.begin()) {
            const auto before = std::prev(after);
            if (before->first + before->second == address) {
                before->second += bytes;
                return true;
            }
        }
        free_.emplace(address, bytes);
        return true;
    }

    void release_all() {
        taken_.clear();
        used_ = 0;
        free_.clear();
        free_.emplace(base_, bytes_);
    }

    void limit(std::uint64_t bytes) { limit_ = std::min(bytes, bytes_); }

    std::uint64_t used() const { return used_; }
    std::uint64_t count() const { return taken_.size(); }
    std::uint64_t largest() const {
        std::uint64_t space = 0;
        for (const auto& gap : free_) space = std::max(space, gap.second);
        return std::min(space, limit_ > used_ ? limit_ - used_ : 0);
    }

private:
    std::uint64_t base_, bytes_, limit_, used_ = 0;
    std::map<std::uint64_t, std::uint64_t> free_, taken_;  // address to bytes
};

}  // namespace fastdelta

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Reads the xclbin containers that fastdelta.xclbin writes for simulated cards.
#ifndef FASTDELTA_CONTAINER_H
#define FASTDELTA_CONTAINER_H

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fastdelta {

using Uuid = std::array<std::uint8_t, 16>;

struct ContainerMemory {
    bool used;
    std::uint64_t base, bytes;
    std::string tag;
};

struct ContainerUnit {
    std::string name, kernel;  // name: kernel:instance
    std::uint64_t base, range;
    bool chain;
    std::map<std::string, std::vector<int>> ports;  // entries of the memory topology behind each
};

class Container {
public:
    static Uuid uuid_of(const void* data);  // throws if it is no container

    explicit Container(const void* data);

    Uuid uuid{};
    std::string platform;
    bool simulated = false;
    std::map<std::string, std::string> keys;  // of the simulation of each kernel
    std::vector<ContainerMemory> memories, groups;
    std::vector<ContainerUnit> units;
    std::vector<std::uint16_t> clocks;  // MHz

private:
    struct Bytes {
        const std::uint8_t* data = nullptr;
        std::uint64_t size = 0;
    };
    void read_manifest(Bytes bytes);
    void read_metadata(Bytes bytes, Bytes connectivity);
};

}  // namespace fastdelta

#endif

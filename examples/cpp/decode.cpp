// SPDX-License-Identifier: Apache-2.0
//
// The decode kernel from C++, with XRT's native interface and without Python: clears context 0,
// decodes tokens that are packed as docs/decode_engine.md says, and writes the packed outputs.
//
//   g++ -std=c++17 -I/usr/include/xrt examples/cpp/decode.cpp -o decode -lxrt_coreutil -pthread
//   ./decode OVERLAY.xclbin TOKENS QK_FILE V_FILE OUTPUT_FILE OUTPUT_BYTES
//
// (-I/opt/xilinx/xrt/include -L/opt/xilinx/xrt/lib for AMD's own packages.) Prints status and
// cycles as JSON.
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t kDecode = 0, kClear = 1;  // commands
constexpr std::uint32_t kContext = 0, kFlags = 0;
constexpr std::uint32_t kWatchdogCycles = 100'000'000;
constexpr std::uint32_t kMagic = 0x31524446;  // of a result block
constexpr std::size_t kResultBytes = 128, kPage = 4096;
constexpr std::size_t kQkChecksum = 16, kVChecksum = 17, kOChecksum = 18;  // words of a result block
constexpr std::chrono::seconds kTimeout{60};
enum Argument { kQk = 4, kV = 5, kO = 6, kResult = 7 };

std::vector<char> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Sum of the 32-bit words, as the kernel adds up what it reads and writes.
std::uint32_t checksum(const std::vector<char>& bytes) {
    std::vector<std::uint32_t> words(bytes.size() / sizeof(std::uint32_t));
    std::memcpy(words.data(), bytes.data(), words.size() * sizeof(std::uint32_t));
    return std::accumulate(words.begin(), words.end(), std::uint32_t{0});
}

struct Buffers {
    xrt::bo qk, v, o, result;
};

// Runs one command and returns its result block.
std::vector<std::uint32_t> run(xrt::kernel& kernel, Buffers& buffers, std::uint32_t command, std::uint32_t tokens) {
    auto started = kernel(command, kContext, tokens, kFlags, buffers.qk, buffers.v, buffers.o, buffers.result, kWatchdogCycles);
    const auto state = started.wait(kTimeout);
    if (state != ERT_CMD_STATE_COMPLETED) throw std::runtime_error("the command ended in state " + std::to_string(state) + "; reset the card");
    std::vector<std::uint32_t> block(kResultBytes / sizeof(std::uint32_t));
    buffers.result.sync(XCL_BO_SYNC_BO_FROM_DEVICE, kResultBytes, 0);
    buffers.result.read(block.data(), kResultBytes, 0);
    if (std::accumulate(block.begin(), block.end(), std::uint32_t{0}) != 0) throw std::runtime_error("the result block was changed in memory");
    if (block[0] != kMagic) throw std::runtime_error("the kernel wrote no result block");
    if (block[1] != 0) throw std::runtime_error("the kernel ended with status " + std::to_string(block[1]));
    return block;
}

void decode(const std::vector<std::string>& arguments) {
    const auto tokens = static_cast<std::uint32_t>(std::stoul(arguments[1]));
    const auto qk = read_file(arguments[2]), v = read_file(arguments[3]);
    std::vector<char> output(std::stoul(arguments[5]));

    xrt::device device(0);
    const auto uuid = device.load_xclbin(arguments[0]);
    xrt::kernel kernel(device, uuid, "decode_kernel");
    const auto group = [&](int argument) { return static_cast<xrt::memory_group>(kernel.group_id(argument)); };
    Buffers buffers{
        {device, qk.size(), group(kQk)},
        {device, v.size(), group(kV)},
        {device, output.size(), group(kO)},
        {device, kPage, group(kResult)},
    };
    buffers.qk.write(qk.data());
    buffers.qk.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    buffers.v.write(v.data());
    buffers.v.sync(XCL_BO_SYNC_BO_TO_DEVICE);

    run(kernel, buffers, kClear, 0);
    const auto block = run(kernel, buffers, kDecode, tokens);
    buffers.o.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
    buffers.o.read(output.data());
    const bool read_well = block[kQkChecksum] == checksum(qk) && block[kVChecksum] == checksum(v);
    if (!read_well || block[kOChecksum] != checksum(output)) throw std::runtime_error("inputs or output were changed in memory");
    std::ofstream(arguments[4], std::ios::binary).write(output.data(), static_cast<std::streamsize>(output.size()));
    const std::uint64_t cycles = block[4] | std::uint64_t{block[5]} << 32;
    std::cout << "{\"tokens\": " << block[3] << ", \"cycles\": " << cycles << "}\n";
}

}  // namespace

int main(int count, char** values) {
    const std::vector<std::string> arguments(values + 1, values + count);
    if (arguments.size() != 6) {
        std::cerr << "usage: decode OVERLAY.xclbin TOKENS QK_FILE V_FILE OUTPUT_FILE OUTPUT_BYTES\n";
        return 2;
    }
    try {
        decode(arguments);
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}

// SPDX-License-Identifier: Apache-2.0
#include "card.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace fastdelta {

namespace {

constexpr unsigned kPacketFlag = 1u << 31;
constexpr unsigned kCacheableFlag = 1u << 24;  // means nothing on a PCIe card
constexpr unsigned kBankMask = 0xFF'FFFF;
constexpr std::uint64_t kPacketArea = 64u << 20;
constexpr unsigned kVirtualUnit = ~0u;

// A command packet: a header word, the mask of units, the register image.
constexpr unsigned kStateMask = 0xF, kExtraMasksShift = 10, kCountShift = 12, kOpcodeShift = 23, kTypeShift = 28;
constexpr unsigned kStartUnit = 0, kDefaultType = 0, kUnitType = 3;
constexpr unsigned kUnits = 32;  // of one mask

constexpr double kGraceSeconds = 0.5;  // that closing a context waits for its commands
constexpr double kSlice = 0.2;
constexpr double kMilli = 1e-3;
constexpr int kConfigurationFormat = 1;
constexpr std::uint64_t kChunk = 1 << 20;
constexpr std::uint64_t kLimitBytes = std::uint64_t{1} << 40;  // of a buffer

bool is_file(const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

void check(int result) {
    if (result < 0) throw std::runtime_error(fd_last_error());
}

}  // namespace

void say(const char* level, const char* format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "[fastdelta XRT] %s: %s\n", level, text);
}

std::string CardDescription::prefix() const {
    const std::size_t vendor = shell.find('_');
    return shell.substr(0, shell.find('_', vendor + 1) + 1);
}

Configuration Configuration::read(const std::string& path) {
    Configuration configuration;
    std::ifstream file(path);
    if (!file) throw std::runtime_error("there is no " + path + "; make the folder with fastdelta.sim.xrt");
    std::string line;
    int format = 0;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        if (word == "format") {
            words >> format;
        } else if (word == "cache") {
            std::getline(words >> std::ws, configuration.cache);
        } else if (word == "card") {
            CardDescription card;
            words >> card.name >> card.shell;
            configuration.cards.push_back(card);
        } else if (word == "bank" && !configuration.cards.empty()) {
            std::uint64_t base = 0, bytes = 0;
            words >> base >> bytes;
            configuration.cards.back().banks.emplace_back(base, bytes);
        } else {
            throw std::runtime_error(path + " has a line that is not known: " + line);
        }
        if (words.fail()) throw std::runtime_error(path + " has a line that cannot be read: " + line);
    }
    if (format != kConfigurationFormat) throw std::runtime_error(path + " has another format; make the folder again");
    return configuration;
}

HostMemory::~HostMemory() {
    if (data_) munmap(data_, bytes_);
    if (file_ >= 0) ::close(file_);
}

void HostMemory::open(std::uint64_t bytes) {
    file_ = memfd_create("fastdelta-card", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("there is no memory for buffers");
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (data == MAP_FAILED) throw std::runtime_error("there is no address space for buffers");
    data_ = static_cast<std::uint8_t*>(data);
    bytes_ = bytes;
}

void* HostMemory::map(std::uint64_t offset, std::uint64_t bytes, bool write) const {
    void* view = mmap(nullptr, bytes, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_NORESERVE, file_, static_cast<off_t>(offset));
    return view == MAP_FAILED ? nullptr : view;
}

void HostMemory::drop(std::uint64_t offset, std::uint64_t bytes) const {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

Card::Card(const CardDescription& description, const std::string& cache, unsigned index)
    : description_(description), cache_(cache), index_(index), packets_(0, kPacketArea) {}

void Card::open(Client& client) {
    const std::lock_guard lock(mutex_);
    if (!host_open_) {
        std::uint64_t bytes = kPacketArea;
        for (const auto& bank : description_.banks) {
            bank_offsets_.push_back(bytes);
            bytes += bank.second;
        }
        host_.open(bytes);
        host_open_ = true;
    }
    clients_.insert(&client);
}

// As the driver when a process closes the card, or dies.
void Card::close(Client& client) {
    const std::lock_guard lock(mutex_);
    while (!client.contexts.empty()) end_context(client, client.contexts.begin()->first);
    for (const auto& [handle, buffer] : client.buffers) release(buffer);
    client.buffers.clear();
    clients_.erase(&client);
}

int Card::load(const void* xclbin) {
    const std::lock_guard lock(mutex_);
    try {
        return load_locked(xclbin);
    } catch (const std::exception& error) {
        say("ERROR", "card %u cannot load this xclbin: %s", index_, error.what());
        return -EINVAL;
    }
}

int Card::load_locked(const void* xclbin) {
    const Uuid uuid = Container::uuid_of(xclbin);
    if (bad_state_) {
        say("ERROR", "a compute unit of card %u hangs: reset the card (xclResetDevice, or xbutil reset) and load again", index_);
        return -EDEADLK;
    }
    // The driver does not load again what is loaded: a kernel keeps what it holds.
    if (container_ && container_->uuid == uuid) return 0;
    for (std::size_t unit = 0; board_ && unit < container_->units.size(); ++unit) {
        if (fd_is_busy(board_.get(), static_cast<int>(unit)) == 1) {
            say("ERROR", "the xclbin on card %u is in use by another process", index_);
            return -EBUSY;
        }
    }
    for (const Client* client : clients_) {
        if (!client->contexts.empty()) {
            say("ERROR", "the xclbin on card %u is in use: close the contexts of its compute units first", index_);
            return -EBUSY;
        }
    }
    const Container container(xclbin);
    if (container.platform.rfind(description_.prefix(), 0) != 0) {
        say("ERROR", "the xclbin is for %s, card %u is a %s", container.platform.c_str(), index_, description_.shell.c_str());
        return -EOPNOTSUPP;
    }
    if (!container.simulated) {
        say("ERROR", "the xclbin has a bitstream for a real %s, and card %u is simulated", description_.name.c_str(), index_);
        return -EINVAL;
    }
    if (const std::uint64_t count = buffers_in_banks()) {
        say("ERROR", "%llu buffers of the xclbin before are still allocated on card %u", static_cast<unsigned long long>(count), index_);
        return -EPERM;
    }
    board_ = build(container);
    container_ = container;
    return 0;
}

Card::Board Card::build(const Container& container) {
    if (container.memories.size() != description_.banks.size()) throw std::runtime_error("it has other memory banks than the card");
    Board board(fd_board_create(), fd_board_destroy);
    for (std::size_t i = 0; i < description_.banks.size(); ++i) {
        const auto& [base, bytes] = description_.banks[i];
        if (container.memories[i].base != base || container.memories[i].bytes != bytes) {
            throw std::runtime_error("its memory bank " + container.memories[i].tag + " is not that of the card");
        }
        check(fd_add_bank(board.get(), base, bytes));
    }
    for (const ContainerUnit& unit : container.units) {
        const auto key = container.keys.find(unit.kernel);
        if (key == container.keys.end()) throw std::runtime_error("it has no simulation of " + unit.kernel);
        const std::string library = cache_ + "/kernels/" + key->second + "/library.so";
        if (key->second.find('/') != std::string::npos || !is_file(library)) {
            throw std::runtime_error("the simulation of " + unit.kernel + " is not in " + cache_ + "; build it again");
        }
        const int index = fd_add_compute_unit(board.get(), library.c_str(), unit.chain);
        check(index);
        const int ports = fd_port_count(board.get(), index);
        for (const auto& [name, banks] : unit.ports) {
            int port = 0;
            while (port < ports && name != fd_port_name(board.get(), index, port)) ++port;
            for (const int bank : banks) check(fd_connect(board.get(), index, port, bank));
        }
    }
    for (const auto& [name, value] : options_) check(fd_set_option(board.get(), name.c_str(), value));
    return board;
}

int Card::reset() {
    const std::lock_guard lock(mutex_);
    drop_all();
    return 0;
}

// Commands end, contexts and buffers are gone, nothing is loaded.
void Card::drop_all() {
    for (std::size_t unit = 0; board_ && unit < container_->units.size(); ++unit) fd_abandon(board_.get(), static_cast<int>(unit));
    for (Client* client : clients_) {
        collect(*client);
        client->contexts.clear();
        for (const auto& [handle, buffer] : client->buffers) release(buffer);
        client->buffers.clear();
    }
    board_.reset();
    container_.reset();
    bad_state_ = false;
}

void Card::describe(xclDeviceInfo2& info) {
    const std::lock_guard lock(mutex_);
    std::memset(&info, 0, sizeof info);
    info.mMagic = 0x586C0C6C;
    std::snprintf(info.mName, sizeof info.mName, "%s", description_.shell.c_str());
    std::snprintf(info.mFpga, sizeof info.mFpga, "simulated %s", description_.name.c_str());
    info.mHALMajorVersion = 2;
    info.mHALMinorVersion = 13;
    info.mVendorId = 0x10EE;
    for (const auto& bank : description_.banks) info.mDDRSize += bank.second;
    info.mDDRFreeSize = info.mDDRSize;
    info.mDDRBankCount = static_cast<unsigned short>(description_.banks.size());
    info.mDataAlignment = kBufferAlignment;
    info.mMinTransferSize = 1;
    for (std::size_t i = 0; container_ && i < container_->clocks.size() && i < 4; ++i) info.mOCLFrequency[i] = container_->clocks[i];
    info.mNumClocks = container_ ? static_cast<unsigned short>(container_->clocks.size()) : 0;
    info.mMigCalib = true;
    info.mPciSlot = index_;
}

void Card::usage(xclDeviceUsage& usage) {
    const std::lock_guard lock(mutex_);
    std::memset(&usage, 0, sizeof usage);
    for (std::size_t bank = 0; board_ && bank < description_.banks.size() && bank < 8; ++bank) {
        fd_bank_usage found{};
        fd_usage(board_.get(), static_cast<int>(bank), &found);
        usage.ddrMemUsed[bank] = found.used;
        usage.ddrBOAllocated[bank] = static_cast<unsigned>(found.buffers);
        usage.memSize[bank] = found.bytes;
    }
    for (const Client* client : clients_) usage.totalContexts += static_cast<unsigned>(client->contexts.size());
    usage.dma_channel_cnt = usage.mm_channel_cnt = 2;
}

int Card::unit_index(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; container_ && i < container_->units.size(); ++i) {
        if (container_->units[i].name == name) return static_cast<int>(i);
    }
    say("ERROR", "card %u has no compute unit %s", index_, name.c_str());
    return -ENOENT;
}

int Card::open_context(Client& client, const Uuid& uuid, unsigned unit, bool shared) {
    const std::lock_guard lock(mutex_);
    if (!container_ || container_->uuid != uuid) {
        say("ERROR", "card %u has another xclbin than the one that the context is for", index_);
        return -EBUSY;
    }
    if (unit == kVirtualUnit) {
        ++client.contexts[unit].count;
        return 0;
    }
    if (unit >= container_->units.size()) return -EINVAL;
    if (fd_is_busy(board_.get(), static_cast<int>(unit)) == 1) {
        say("ERROR", "compute unit %s of card %u is in use by another process", container_->units[unit].name.c_str(), index_);
        return -EBUSY;
    }
    for (const Client* other : clients_) {
        const auto context = other->contexts.find(unit);
        if (context != other->contexts.end() && (context->second.exclusive || !shared)) {
            say("ERROR", "compute unit %s of card %u is open already", container_->units[unit].name.c_str(), index_);
            return -EBUSY;
        }
    }
    Client::Context& context = client.contexts[unit];
    ++context.count;
    context.exclusive = !shared;
    return 0;
}

int Card::close_context(Client& client, unsigned unit) {
    const std::lock_guard lock(mutex_);
    const auto context = client.contexts.find(unit);
    if (context == client.contexts.end()) {
        say("ERROR", "compute unit %u of card %u is not open", unit, index_);
        return -EINVAL;
    }
    if (--context->second.count == 0) end_context(client, unit);
    return 0;
}

void Card::end_context(Client& client, unsigned unit) {
    client.contexts.erase(unit);
    if (unit == kVirtualUnit || !board_) return;
    end_commands(client, unit);
    if (fd_is_hung(board_.get(), static_cast<int>(unit)) == 1 && !bad_state_) {
        say("ERROR", "compute unit %s hangs, please reset card %u", container_->units[unit].name.c_str(), index_);
        bad_state_ = true;
    }
}

// Waits a little for the commands of a client on a unit, and aborts those that are left.
void Card::end_commands(Client& client, unsigned unit) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kGraceSeconds);
    for (const Client::Running& running : client.running) {
        if (running.unit != unit) continue;
        const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
        if (fd_wait(board_.get(), running.command, std::max(0.0, left.count())) == 1) continue;
        say("WARNING", "a command on compute unit %s of card %u is aborted", container_->units[unit].name.c_str(), index_);
        fd_abandon(board_.get(), static_cast<int>(unit));
        break;
    }
    collect(client);
}

const Buffer* Card::find(const Client& client, xclBufferHandle handle) const {
    const auto found = client.buffers.find(handle);
    return found == client.buffers.end() ? nullptr : &found->second;
}

std::uint64_t Card::buffers_in_banks() {
    std::uint64_t count = 0;
    for (const Client* client : clients_) {
        count += static_cast<std::uint64_t>(std::count_if(client->buffers.begin(), client->buffers.end(), [](const auto& entry) { return !entry.second.packet; }));
    }
    return count;
}

// Allocates in a bank, or in the first bank of a group that has room.
int Card::pick_bank(std::uint64_t bytes, unsigned index, std::uint64_t& address) {
    std::vector<int> banks;
    if (index < container_->memories.size()) {
        if (!container_->memories[index].used) {
            say("ERROR", "bank %s of card %u is not used by this xclbin", container_->memories[index].tag.c_str(), index_);
            return -EINVAL;
        }
        banks = {static_cast<int>(index)};
    } else if (index < container_->groups.size()) {
        const ContainerMemory& group = container_->groups[index];
        for (std::size_t i = 0; i < container_->memories.size(); ++i) {
            const std::uint64_t base = container_->memories[i].base;
            if (base >= group.base && base - group.base < group.bytes) banks.push_back(static_cast<int>(i));
        }
    } else {
        say("ERROR", "there is no memory bank %u on card %u", index, index_);
        return -EINVAL;
    }
    for (const int bank : banks) {
        const int result = fd_allocate(board_.get(), bank, bytes, &address);
        if (result == 0) return bank;
        if (result < 0) return -EINVAL;
    }
    return -ENOMEM;
}

int Card::allocate(Client& client, void* host, std::uint64_t bytes, unsigned flags, xclBufferHandle& handle) {
    const std::lock_guard lock(mutex_);
    if (bytes == 0 || bytes > kLimitBytes || reinterpret_cast<std::uintptr_t>(host) % kBufferAlignment) return -EINVAL;
    Buffer buffer{BankAllocator::rounded(bytes), 0, 0, -1, flags, (flags & kPacketFlag) != 0, static_cast<std::uint8_t*>(host)};
    if (buffer.packet) {
        if (host) return -EINVAL;
        const auto offset = packets_.allocate(buffer.bytes);
        if (!offset) return -ENOMEM;
        buffer.offset = *offset;
        host_.drop(buffer.offset, buffer.bytes);
    } else {
        if (flags & ~(kBankMask | kCacheableFlag)) {
            say("ERROR", "a buffer with flags %#x cannot be simulated", flags);
            return -EINVAL;
        }
        if (!board_) {
            say("ERROR", "no xclbin is loaded on card %u", index_);
            return -EINVAL;
        }
        const int bank = pick_bank(bytes, flags & kBankMask, buffer.address);
        if (bank < 0) return bank;
        buffer.bank = bank;
        const std::size_t at = static_cast<std::size_t>(bank);
        buffer.offset = bank_offsets_[at] + (buffer.address - description_.banks[at].first);
    }
    handle = 1;  // the lowest that is free, as the driver does: a stale handle can be another buffer
    for (const auto& entry : client.buffers) {
        if (entry.first != handle) break;
        ++handle;
    }
    client.buffers.emplace(handle, buffer);
    return 0;
}

void Card::release(const Buffer& buffer) {
    if (buffer.packet) {  // a client may still look at its state; it is cleared when it is used again
        packets_.release(buffer.offset);
        return;
    }
    if (!buffer.host) host_.drop(buffer.offset, buffer.bytes);
    if (board_) fd_free(board_.get(), buffer.address);
}

void Card::free(Client& client, xclBufferHandle handle) {
    const std::lock_guard lock(mutex_);
    const Buffer* buffer = find(client, handle);
    if (!buffer) return;
    const auto running = std::find_if(client.running.begin(), client.running.end(), [&](const auto& entry) { return entry.handle == handle && !entry.freed; });
    if (running != client.running.end()) running->freed = true;  // lives until its command ends
    else release(*buffer);
    client.buffers.erase(handle);
}

int Card::properties(Client& client, xclBufferHandle handle, xclBOProperties& properties) {
    const std::lock_guard lock(mutex_);
    const Buffer* buffer = find(client, handle);
    if (!buffer) return -ENOENT;
    properties = {handle, buffer->flags, buffer->bytes, buffer->address, 0};
    return 0;
}

void* Card::map(Client& client, xclBufferHandle handle, bool write) {
    const std::lock_guard lock(mutex_);
    const Buffer* buffer = find(client, handle);
    if (!buffer || buffer->host) return nullptr;
    return host_.map(buffer->offset, buffer->bytes, write);
}

int Card::unmap(void* address, std::uint64_t bytes) { return munmap(address, bytes) == 0 ? 0 : -errno; }

int Card::sync(Client& client, xclBufferHandle handle, int direction, std::uint64_t bytes, std::uint64_t offset) {
    const std::lock_guard lock(mutex_);
    const Buffer* buffer = find(client, handle);
    if (!buffer) return -ENOENT;
    if (buffer->packet || offset > buffer->bytes || bytes > buffer->bytes - offset) return -EINVAL;
    std::uint8_t* host = host_of(*buffer) + offset;
    const std::uint64_t address = buffer->address + offset;
    int result = -1;
    if (direction == XCL_BO_SYNC_BO_TO_DEVICE) result = fd_memory_write(board_.get(), address, host, bytes);
    if (direction == XCL_BO_SYNC_BO_FROM_DEVICE) result = fd_memory_read(board_.get(), address, host, bytes);
    return result == 0 ? 0 : -EINVAL;
}

int Card::copy(Client& client, xclBufferHandle to, xclBufferHandle from, std::uint64_t bytes, std::uint64_t to_offset, std::uint64_t from_offset) {
    const std::lock_guard lock(mutex_);
    const Buffer* target = find(client, to);
    const Buffer* source = find(client, from);
    if (!target || !source) return -ENOENT;
    for (const auto& [buffer, offset] : {std::pair(target, to_offset), std::pair(source, from_offset)}) {
        if (buffer->packet || offset > buffer->bytes || bytes > buffer->bytes - offset) return -EINVAL;
    }
    std::vector<std::uint8_t> chunk(std::min(bytes, kChunk));
    for (std::uint64_t done = 0; done < bytes; done += chunk.size()) {
        const std::uint64_t count = std::min<std::uint64_t>(chunk.size(), bytes - done);
        if (fd_memory_read(board_.get(), source->address + from_offset + done, chunk.data(), count) != 0) return -EINVAL;
        if (fd_memory_write(board_.get(), target->address + to_offset + done, chunk.data(), count) != 0) return -EINVAL;
    }
    return 0;
}

int Card::access_host(Client& client, xclBufferHandle handle, void* to, const void* from, std::uint64_t bytes, std::uint64_t offset) {
    const std::lock_guard lock(mutex_);
    const Buffer* buffer = find(client, handle);
    if (!buffer) return -ENOENT;
    if (offset > buffer->bytes || bytes > buffer->bytes - offset) return -EINVAL;
    std::uint8_t* host = host_of(*buffer) + offset;
    if (to) std::memcpy(to, host, bytes);
    else std::memcpy(host, from, bytes);
    return 0;
}

void Card::set_state(const Buffer& packet, unsigned state) const {
    std::uint32_t header = 0;
    std::memcpy(&header, host_.at(packet.offset), sizeof header);
    header = (header & ~kStateMask) | state;
    std::memcpy(host_.at(packet.offset), &header, sizeof header);
}

int Card::submit(Client& client, xclBufferHandle handle) {
    const std::lock_guard lock(mutex_);
    const Buffer* buffer = find(client, handle);
    if (!buffer || !buffer->packet) return -EINVAL;
    if (bad_state_) return -EDEADLK;
    if (!board_) return -EINVAL;
    for (const Client::Running& running : client.running) {
        if (running.handle == handle && !running.freed) {
            say("ERROR", "packet %u is submitted already", handle);
            return -EBUSY;
        }
    }
    std::vector<std::uint32_t> words(buffer->bytes / sizeof(std::uint32_t));
    std::memcpy(words.data(), host_.at(buffer->offset), buffer->bytes);
    const std::uint32_t header = words[0], mask = words[1];
    const unsigned masks = 1 + (header >> kExtraMasksShift & 3), count = header >> kCountShift & 0x7FF;
    const unsigned opcode = header >> kOpcodeShift & 0x1F, type = header >> kTypeShift;
    if (opcode != kStartUnit || (type != kDefaultType && type != kUnitType) || masks != 1 || count < 1 || 1 + count > words.size()) {
        say("ERROR", "a packet with opcode %u, type %u, %u masks and %u words; the simulated card starts one unit", opcode, type, masks, count);
        return -EINVAL;
    }
    unsigned unit = 0;
    while (unit < kUnits && !(mask >> unit & 1)) ++unit;
    if (unit == kUnits || mask != 1u << unit || !client.contexts.count(unit)) {
        say("ERROR", "a packet for the units %#x; it must name one that is open", mask);
        return -EINVAL;
    }
    const std::int64_t command = fd_submit(board_.get(), static_cast<int>(unit), words.data() + 2, count - 1, 0);
    if (command < 0) return -EINVAL;
    client.running.push_back({command, unit, handle, *buffer, false});
    return 0;
}

// Takes over the commands that have ended.
void Card::collect(Client& client) {
    if (!board_) return;
    for (auto running = client.running.begin(); running != client.running.end();) {
        fd_command command{};
        if (fd_command_take(board_.get(), running->command, &command) != 1) {
            ++running;
            continue;
        }
        finish(client, *running, command);
        running = client.running.erase(running);
    }
}

void Card::finish(Client& client, const Client::Running& running, const fd_command& command) {
    const char* name = container_->units[running.unit].name.c_str();
    unsigned state = command.state;
    if (state == FD_COMPLETED && command.violations) {
        say("ERROR", "%s violated AXI or the kernel's contract %llu times; its results cannot be trusted", name, static_cast<unsigned long long>(command.violations));
        state = FD_ERROR;
    }
    if (command.outside) {
        say("WARNING", "%s used addresses outside the memory banks of its ports, %llu times; check the bank of each buffer", name, static_cast<unsigned long long>(command.outside));
    }
    if (command.unwritten) {
        say("WARNING", "%s read memory that nothing had written, %llu times; check the copies to the card", name, static_cast<unsigned long long>(command.unwritten));
    }
    if (command.state == FD_ERROR && !fd_is_hung(board_.get(), static_cast<int>(running.unit))) {
        say("ERROR", "%s refused the start: a run that was started through its registers was not acknowledged; write 16 (ap_continue) to its register 0", name);
    }
    if (state == FD_TIMED_OUT) say("ERROR", "%s hangs: not done after %llu cycles", name, static_cast<unsigned long long>(command.cycles));
    set_state(running.packet, state);
    if (running.freed) release(running.packet);
    ++client.ended;
}

int Card::wait(Client& client, int milliseconds) {
    const auto began = std::chrono::steady_clock::now();
    for (;;) {
        Board board;
        std::int64_t seen = 0;
        {
            const std::lock_guard lock(mutex_);
            board = board_;
            if (board) seen = fd_wait_any(board.get(), -1, 0.0);
            collect(client);
            if (client.ended > 0) {
                --client.ended;
                return 1;
            }
        }
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
        const double left = milliseconds < 0 ? kSlice : milliseconds * kMilli - passed.count();
        if (left <= 0) return 0;
        const double slice = std::min(left, kSlice);
        if (board) fd_wait_any(board.get(), seen, slice);
        else std::this_thread::sleep_for(std::chrono::duration<double>(slice));
    }
}

int Card::access_registers(std::uint64_t address, void* to, const void* from, std::uint64_t bytes) {
    Board board;
    int unit = -1;
    std::uint32_t offset = 0;
    {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; container_ && i < container_->units.size(); ++i) {
            const ContainerUnit& candidate = container_->units[i];
            if (address < candidate.base || address - candidate.base > candidate.range || bytes > candidate.range - (address - candidate.base)) continue;
            unit = static_cast<int>(i);
            offset = static_cast<std::uint32_t>(address - candidate.base);
        }
        board = board_;
    }
    if (to) std::memset(to, 0xFF, bytes);  // what a bus gives that nobody answers
    if (unit < 0 || offset % 4 || bytes % 4) {
        say("ERROR", "%llu bytes at %#llx are not whole registers of a compute unit", static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address));
        return -EINVAL;
    }
    for (std::uint32_t at = 0; at < bytes; at += 4) {
        std::uint32_t value = 0;
        int result = 0;
        if (to) {
            result = fd_register_read(board.get(), unit, offset + at, &value);
            if (result == 0) std::memcpy(static_cast<std::uint8_t*>(to) + at, &value, sizeof value);
        } else {
            std::memcpy(&value, static_cast<const std::uint8_t*>(from) + at, sizeof value);
            result = fd_register_write(board.get(), unit, offset + at, value);
        }
        if (result != 0) {
            say("ERROR", "%s", fd_last_error());
            return -EIO;
        }
    }
    return 0;
}

int Card::access_register(Client& client, unsigned unit, std::uint32_t offset, std::uint32_t* read, std::uint32_t write) {
    std::uint64_t address = 0;
    {
        const std::lock_guard lock(mutex_);
        const auto context = client.contexts.find(unit);
        if (context == client.contexts.end() || !context->second.exclusive || unit >= container_->units.size()) {
            say("ERROR", "registers of a compute unit are for the client that has opened it exclusively");
            return -EPERM;
        }
        if (offset > container_->units[unit].range - 4) return -EINVAL;
        address = container_->units[unit].base + offset;
    }
    return access_registers(address, read, read ? nullptr : &write, sizeof write);
}

Card::Board Card::board() {
    const std::lock_guard lock(mutex_);
    return board_;
}

std::vector<std::string> Card::unit_names() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (std::size_t i = 0; container_ && i < container_->units.size(); ++i) {
        const std::string& name = container_->units[i].name;
        names.push_back(name.substr(name.find(':') + 1));
    }
    return names;
}

void Card::set_option(const std::string& name, double value) {
    const std::lock_guard lock(mutex_);
    if (board_) check(fd_set_option(board_.get(), name.c_str(), value));
    options_[name] = value;
}

int Card::power_cycle() {
    const std::lock_guard lock(mutex_);
    if (buffers_in_banks()) return -EPERM;
    for (const Client* client : clients_) {
        if (!client->contexts.empty()) return -EBUSY;
    }
    for (std::size_t unit = 0; board_ && unit < container_->units.size(); ++unit) fd_abandon(board_.get(), static_cast<int>(unit));
    for (Client* client : clients_) {
        collect(*client);
        client->ended = 0;
    }
    board_.reset();
    container_.reset();
    bad_state_ = false;
    options_.clear();
    return 0;
}

std::int64_t Card::live_buffers() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(buffers_in_banks());
}

void Card::stop() {
    const std::lock_guard lock(mutex_);
    board_.reset();
}

}  // namespace fastdelta

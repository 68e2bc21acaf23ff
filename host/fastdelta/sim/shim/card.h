// SPDX-License-Identifier: Apache-2.0
//
// A simulated card as XRT's driver shows it: one loaded container on a board model, and clients
// that have opened the card. What is refused, and with which error number, follows the driver of
// XRT 2.13 to 2.16.
#ifndef FASTDELTA_CARD_H
#define FASTDELTA_CARD_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bank_allocator.h"
#include "board.h"
#include "container.h"
#include "xrt_abi.h"

namespace fastdelta {

struct CardDescription {
    std::string name, shell;  // u55c, and the name that XRT reports
    std::vector<std::pair<std::uint64_t, std::uint64_t>> banks;  // base, bytes

    std::string prefix() const;  // of the platforms that containers for it are linked for
};

struct Configuration {
    std::string cache;  // folder of the built simulations
    std::vector<CardDescription> cards;

    static Configuration read(const std::string& path);  // throws
};

// Prints a message as XRT does, on standard error.
__attribute__((format(printf, 2, 3))) void say(const char* level, const char* format, ...);

// Host memory of every buffer of a card: a sparse file, mapped once here and once more for each
// client that asks, so that a client may unmap its view at any time.
class HostMemory {
public:
    ~HostMemory();
    void open(std::uint64_t bytes);  // throws
    std::uint8_t* at(std::uint64_t offset) const { return data_ + offset; }
    void* map(std::uint64_t offset, std::uint64_t bytes, bool write) const;  // null: failed
    void drop(std::uint64_t offset, std::uint64_t bytes) const;

private:
    int file_ = -1;
    std::uint8_t* data_ = nullptr;
    std::uint64_t bytes_ = 0;
};

struct Buffer {
    std::uint64_t bytes;    // whole pages
    std::uint64_t offset;   // in host memory
    std::uint64_t address;  // on the card; none for a packet
    int bank;
    unsigned flags;
    bool packet;
    std::uint8_t* host;  // memory of the client in place of the card's host memory, or null
};

class Card;

// One xclOpen. The lock is the card's.
struct Client {
    struct Running {
        std::int64_t command;
        unsigned unit;
        xclBufferHandle handle;
        Buffer packet;
        bool freed;  // the client has freed the packet meanwhile
    };
    struct Context {
        unsigned count = 0;
        bool exclusive = false;
    };

    explicit Client(Card& its_card) : card(its_card) {}

    Card& card;
    std::map<xclBufferHandle, Buffer> buffers;
    std::map<unsigned, Context> contexts;
    std::vector<Running> running;
    std::int64_t ended = 0;  // commands that xclExecWait has not reported yet
};

class Card {
public:
    Card(const CardDescription& description, const std::string& cache, unsigned index);

    // All return 0 or a negative error number, if nothing else is said.
    void open(Client& client);
    void close(Client& client);
    int load(const void* xclbin);
    int reset();
    void describe(xclDeviceInfo2& info);
    void usage(xclDeviceUsage& usage);

    int unit_index(const std::string& name);
    int open_context(Client& client, const Uuid& uuid, unsigned unit, bool shared);
    int close_context(Client& client, unsigned unit);

    int allocate(Client& client, void* host, std::uint64_t bytes, unsigned flags, xclBufferHandle& handle);  // host: null, or whole pages of the client
    void free(Client& client, xclBufferHandle handle);
    int properties(Client& client, xclBufferHandle handle, xclBOProperties& properties);
    void* map(Client& client, xclBufferHandle handle, bool write);
    int unmap(void* address, std::uint64_t bytes);
    int sync(Client& client, xclBufferHandle handle, int direction, std::uint64_t bytes, std::uint64_t offset);
    int copy(Client& client, xclBufferHandle to, xclBufferHandle from, std::uint64_t bytes, std::uint64_t to_offset, std::uint64_t from_offset);
    int access_host(Client& client, xclBufferHandle handle, void* to, const void* from, std::uint64_t bytes, std::uint64_t offset);

    int submit(Client& client, xclBufferHandle handle);
    int wait(Client& client, int milliseconds);  // as poll: 1 something ended, 0 nothing did

    int access_registers(std::uint64_t address, void* to, const void* from, std::uint64_t bytes);
    int access_register(Client& client, unsigned unit, std::uint32_t offset, std::uint32_t* read, std::uint32_t write);

    // What a card does not have: the simulator's side.
    using Board = std::shared_ptr<fd_board>;
    const CardDescription& description() const { return description_; }
    Board board();
    std::vector<std::string> unit_names();
    void set_option(const std::string& name, double value);  // throws
    int power_cycle();  // as new; refused while buffers or contexts live
    std::int64_t live_buffers();
    void stop();  // at the end of the process

private:
    int load_locked(const void* xclbin);
    Board build(const Container& container);
    void drop_all();
    void collect(Client& client);
    void finish(Client& client, const Client::Running& running, const fd_command& command);
    void release(const Buffer& buffer);
    void end_commands(Client& client, unsigned unit);
    void end_context(Client& client, unsigned unit);
    std::uint64_t buffers_in_banks();
    int pick_bank(std::uint64_t bytes, unsigned index, std::uint64_t& address);
    const Buffer* find(const Client& client, xclBufferHandle handle) const;
    std::uint8_t* host_of(const Buffer& buffer) const { return buffer.host ? buffer.host : host_.at(buffer.offset); }
    void set_state(const Buffer& packet, unsigned state) const;

    const CardDescription description_;
    const std::string cache_;
    const unsigned index_;

    std::mutex mutex_;
    std::set<Client*> clients_;
    bool bad_state_ = false;  // a unit hangs: nothing can be loaded before a reset
    std::map<std::string, double> options_;
    std::optional<Container> container_;
    Board board_;
    HostMemory host_;
    bool host_open_ = false;
    std::vector<std::uint64_t> bank_offsets_;  // of the banks in host memory
    BankAllocator packets_;
};

}  // namespace fastdelta

#endif

// SPDX-License-Identifier: Apache-2.0
//
// libxrt_core.so of simulated cards: XRT's C functions, and the simulator's own for tests.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "card.h"
#include "shim.h"
#include "xrt_abi.h"

using fastdelta::Card;
using fastdelta::Client;
using fastdelta::Uuid;
using fastdelta::say;

namespace {

constexpr unsigned kVersion = 2;

std::string configuration_path() {
    Dl_info info{};
    if (!dladdr(reinterpret_cast<void*>(&xclProbe), &info) || !info.dli_fname) return "cards.txt";
    const std::string library = info.dli_fname;
    return library.substr(0, library.rfind('/') + 1) + "../cards.txt";
}

// All cards of this process, and the handles that were given out. It lives until the process ends:
// Python frees buffers very late.
class System {
public:
    static System& get() {
        static System* system = new System();
        return *system;
    }

    std::vector<std::unique_ptr<Card>> cards;

    Client* open(unsigned index) {
        if (index >= cards.size() || getpid() != process_) return nullptr;
        const auto client = std::make_shared<Client>(*cards[index]);
        cards[index]->open(*client);
        {
            const std::lock_guard lock(mutex_);
            clients_.emplace(client.get(), client);
        }
        if (fd_xrt_opened) fd_xrt_opened(client.get(), index);
        return client.get();
    }

    void close(Client* client) {
        std::shared_ptr<Client> closed;
        {
            const std::lock_guard lock(mutex_);
            const auto found = clients_.find(client);
            if (found == clients_.end()) return;
            closed = std::move(found->second);
            clients_.erase(found);
        }
        closed->card.close(*closed);
        if (fd_xrt_closed) fd_xrt_closed(client);
    }

    // The client of a handle, or nothing: also in a forked process, which does not have the threads.
    std::shared_ptr<Client> find(xclDeviceHandle handle) {
        if (!handle || getpid() != process_) return nullptr;
        const std::lock_guard lock(mutex_);
        const auto found = clients_.find(static_cast<Client*>(handle));
        return found == clients_.end() ? nullptr : found->second;
    }

    Card* card(unsigned index) { return index < cards.size() && getpid() == process_ ? cards[index].get() : nullptr; }

    fd_board* retain(const Card::Board& board) {
        if (!board) return nullptr;
        const std::lock_guard lock(mutex_);
        retained_.emplace(board.get(), board);
        return board.get();
    }

    void give_back(fd_board* board) {
        Card::Board last;
        const std::lock_guard lock(mutex_);
        const auto found = retained_.find(board);
        if (found == retained_.end()) return;
        last = found->second;
        retained_.erase(found);
    }

    // Threads of boards must not run while the libraries of their kernels are taken down.
    void stop_at_exit() {
        std::atexit([] {
            System& system = get();
            if (getpid() != system.process_) return;
            for (const auto& each : system.cards) each->stop();
        });
    }

private:
    System() {
        try {
            const auto configuration = fastdelta::Configuration::read(configuration_path());
            for (const auto& description : configuration.cards) {
                cards.push_back(std::make_unique<Card>(description, configuration.cache, static_cast<unsigned>(cards.size())));
            }
        } catch (const std::exception& error) {
            say("ERROR", "%s", error.what());
        }
    }

    const pid_t process_ = getpid();
    std::mutex mutex_;
    std::map<Client*, std::shared_ptr<Client>> clients_;
    std::multimap<fd_board*, Card::Board> retained_;
};

// Calls a function with the client of a handle; without one the result is -ENODEV.
template <class Result, class Function>
Result with(xclDeviceHandle handle, Result missing, Function function) {
    const auto client = System::get().find(handle);
    if (!client) return missing;
    try {
        return function(*client, client->card);
    } catch (const std::exception& error) {
        say("ERROR", "%s", error.what());
        return missing;
    }
}

template <class Function>
int with(xclDeviceHandle handle, Function function) {
    return with(handle, -ENODEV, function);
}

Uuid uuid_from(const unsigned char* bytes) {
    Uuid uuid;
    std::memcpy(uuid.data(), bytes, uuid.size());
    return uuid;
}

thread_local std::string last_text;

const char* keep(std::string text) {
    last_text = std::move(text);
    return last_text.c_str();
}

}  // namespace

unsigned int xclProbe() { return static_cast<unsigned>(System::get().cards.size()); }

unsigned int xclVersion() { return kVersion; }

xclDeviceHandle xclOpen(unsigned int index, const char*, int) {
    try {
        return System::get().open(index);
    } catch (const std::exception& error) {
        say("ERROR", "card %u cannot be opened: %s", index, error.what());
        return nullptr;
    }
}

void xclClose(xclDeviceHandle handle) {
    if (const auto client = System::get().find(handle)) System::get().close(client.get());
}

int xclGetDeviceInfo2(xclDeviceHandle handle, xclDeviceInfo2* info) {
    return with(handle, [&](Client&, Card& card) {
        card.describe(*info);
        return 0;
    });
}

int xclGetUsageInfo(xclDeviceHandle handle, xclDeviceUsage* usage) {
    return with(handle, [&](Client&, Card& card) {
        card.usage(*usage);
        return 0;
    });
}

int xclResetDevice(xclDeviceHandle handle, int kind) {
    return with(handle, [&](Client&, Card& card) { return kind == XCL_USER_RESET ? card.reset() : -EINVAL; });
}

int xclLockDevice(xclDeviceHandle handle) {
    return with(handle, [](Client&, Card&) { return 0; });
}

int xclUnlockDevice(xclDeviceHandle handle) {
    return with(handle, [](Client&, Card&) { return 0; });
}

int xclLoadXclBin(xclDeviceHandle handle, const void* xclbin) {
    return with(handle, [&](Client&, Card& card) {
        const int result = card.load(xclbin);
        if (result == 0 && fd_xrt_loaded) fd_xrt_loaded(handle, xclbin);
        System::get().stop_at_exit();  // behind the kernels' libraries, so that it comes before them
        return result;
    });
}

int xclIPName2Index(xclDeviceHandle handle, const char* name) {
    return with(handle, [&](Client&, Card& card) { return card.unit_index(name); });
}

int xclOpenContext(xclDeviceHandle handle, const unsigned char* uuid, unsigned int index, bool shared) {
    return with(handle, [&](Client& client, Card& card) { return card.open_context(client, uuid_from(uuid), index, shared); });
}

int xclCloseContext(xclDeviceHandle handle, const unsigned char*, unsigned int index) {
    return with(handle, [&](Client& client, Card& card) { return card.close_context(client, index); });
}

xclBufferHandle xclAllocBO(xclDeviceHandle handle, size_t size, int, unsigned int flags) {
    return xclAllocUserPtrBO(handle, nullptr, size, flags);
}

xclBufferHandle xclAllocUserPtrBO(xclDeviceHandle handle, void* host, size_t size, unsigned int flags) {
    return static_cast<xclBufferHandle>(with(handle, [&](Client& client, Card& card) {
        xclBufferHandle buffer = 0;
        const int result = card.allocate(client, host, size, flags, buffer);
        if (result < 0) errno = -result;
        return result < 0 ? result : static_cast<int>(buffer);
    }));
}

void xclFreeBO(xclDeviceHandle handle, xclBufferHandle buffer) {
    with(handle, [&](Client& client, Card& card) {
        card.free(client, buffer);
        return 0;
    });
}

int xclGetBOProperties(xclDeviceHandle handle, xclBufferHandle buffer, xclBOProperties* properties) {
    return with(handle, [&](Client& client, Card& card) { return card.properties(client, buffer, *properties); });
}

void* xclMapBO(xclDeviceHandle handle, xclBufferHandle buffer, bool write) {
    return with(handle, static_cast<void*>(nullptr), [&](Client& client, Card& card) { return card.map(client, buffer, write); });
}

int xclUnmapBO(xclDeviceHandle handle, xclBufferHandle buffer, void* address) {
    return with(handle, [&](Client& client, Card& card) {
        xclBOProperties properties{};
        const int result = card.properties(client, buffer, properties);
        return result != 0 ? result : card.unmap(address, properties.size);
    });
}

int xclSyncBO(xclDeviceHandle handle, xclBufferHandle buffer, int direction, size_t size, size_t offset) {
    return with(handle, [&](Client& client, Card& card) { return card.sync(client, buffer, direction, size, offset); });
}

int xclCopyBO(xclDeviceHandle handle, xclBufferHandle to, xclBufferHandle from, size_t size, size_t to_offset, size_t from_offset) {
    return with(handle, [&](Client& client, Card& card) { return card.copy(client, to, from, size, to_offset, from_offset); });
}

size_t xclWriteBO(xclDeviceHandle handle, xclBufferHandle buffer, const void* from, size_t size, size_t seek) {
    return static_cast<size_t>(with(handle, [&](Client& client, Card& card) { return card.access_host(client, buffer, nullptr, from, size, seek); }));
}

size_t xclReadBO(xclDeviceHandle handle, xclBufferHandle buffer, void* to, size_t size, size_t skip) {
    return static_cast<size_t>(with(handle, [&](Client& client, Card& card) { return card.access_host(client, buffer, to, nullptr, size, skip); }));
}

int xclExecBuf(xclDeviceHandle handle, xclBufferHandle buffer) {
    return with(handle, [&](Client& client, Card& card) { return card.submit(client, buffer); });
}

int xclExecBufWithWaitList(xclDeviceHandle, xclBufferHandle, size_t, xclBufferHandle*) { return -EOPNOTSUPP; }

int xclExecWait(xclDeviceHandle handle, int milliseconds) {
    return with(handle, [&](Client& client, Card& card) { return card.wait(client, milliseconds); });
}

size_t xclRead(xclDeviceHandle handle, int space, uint64_t offset, void* to, size_t size) {
    return static_cast<size_t>(with(handle, [&](Client&, Card& card) {
        if (space != XCL_ADDR_KERNEL_CTRL) return -EPERM;
        return card.access_registers(offset, to, nullptr, size) == 0 ? static_cast<int>(size) : -1;
    }));
}

size_t xclWrite(xclDeviceHandle handle, int space, uint64_t offset, const void* from, size_t size) {
    return static_cast<size_t>(with(handle, [&](Client&, Card& card) {
        if (space != XCL_ADDR_KERNEL_CTRL) return -EPERM;
        return card.access_registers(offset, nullptr, from, size) == 0 ? static_cast<int>(size) : -1;
    }));
}

int xclRegRead(xclDeviceHandle handle, uint32_t index, uint32_t offset, uint32_t* value) {
    return with(handle, [&](Client& client, Card& card) { return card.access_register(client, index, offset, value, 0); });
}

int xclRegWrite(xclDeviceHandle handle, uint32_t index, uint32_t offset, uint32_t value) {
    return with(handle, [&](Client& client, Card& card) { return card.access_register(client, index, offset, nullptr, value); });
}

unsigned fd_card_count() { return xclProbe(); }

const char* fd_card_name(unsigned index) {
    const Card* card = System::get().card(index);
    return card ? card->description().name.c_str() : nullptr;
}

fd_board* fd_card_board(unsigned index) {
    Card* card = System::get().card(index);
    return card ? System::get().retain(card->board()) : nullptr;
}

void fd_card_release_board(fd_board* board) { System::get().give_back(board); }

const char* fd_card_units(unsigned index) {
    Card* card = System::get().card(index);
    std::string names;
    for (const std::string& name : card ? card->unit_names() : std::vector<std::string>{}) names += (names.empty() ? "" : " ") + name;
    return keep(names);
}

int fd_card_set_option(unsigned index, const char* name, double value) {
    Card* card = System::get().card(index);
    if (!card) return -ENODEV;
    try {
        card->set_option(name, value);
        return 0;
    } catch (const std::exception& error) {
        say("ERROR", "%s", error.what());
        return -EINVAL;
    }
}

int fd_card_power_cycle(unsigned index) {
    Card* card = System::get().card(index);
    return card ? card->power_cycle() : -ENODEV;
}

int64_t fd_card_live_buffers(unsigned index) {
    Card* card = System::get().card(index);
    return card ? card->live_buffers() : -ENODEV;
}

// SPDX-License-Identifier: Apache-2.0
//
// Makes the simulated card serve XRT's C++ interface, xrt::device and so on, of XRT 2.13 as Debian
// packages it. That layer wants objects which only XRT's own driver libraries can make. So this
// library loads Debian's libxrt_noop, which makes them, and lets the C functions of that library
// jump to ours: it is linked so that they cannot be replaced by name.
//
// For x86-64 and this one version only; the C functions alone need nothing of XRT.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "shim.h"
#include "xrt_abi.h"

#ifndef __x86_64__
#error "the jumps are those of x86-64"
#endif

namespace {

constexpr char kLibrary[] = "libxrt_noop.so.2";
// xrt_core::get_userpf_device(void*, unsigned int), (void*), and xrt_core::device::register_axlf.
constexpr char kMakeDevice[] = "_ZN8xrt_core17get_userpf_deviceEPvj";
constexpr char kFindDevice[] = "_ZN8xrt_core17get_userpf_deviceEPv";
constexpr char kRegister[] = "_ZN8xrt_core6device13register_axlfEPK4axlf";

struct CoreDevice;  // XRT's

// XRT itself keeps weak references only. Never destroyed: XRT may be gone before.
std::mutex devices_mutex;
auto& devices = *new std::map<void*, std::shared_ptr<CoreDevice>>();

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "[fastdelta XRT] ERROR: XRT's C++ interface cannot be served: %s\n", what);
    std::exit(1);
}

template <class Function>
Function find(void* library, const char* name) {
    void* symbol = dlsym(library, name);
    if (!symbol) fail(name);
    return reinterpret_cast<Function>(symbol);
}

void redirect(void* library, const char* name, const void* target) {
    void* entry = dlsym(library, name);
    if (!entry) return;  // not called by the C++ layer
    std::uint8_t jump[12] = {0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xE0};  // mov target, %rax; jmp *%rax
    std::memcpy(jump + 2, &target, sizeof target);
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(entry) / page * page;
    const auto last = (reinterpret_cast<std::uintptr_t>(entry) + sizeof jump - 1) / page * page;
    void* start = reinterpret_cast<void*>(first);
    if (mprotect(start, last - first + page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) fail("code cannot be changed");
    std::memcpy(entry, jump, sizeof jump);
    mprotect(start, last - first + page, PROT_READ | PROT_EXEC);
}

__attribute__((constructor)) void connect() {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
    if (!library) fail(dlerror());
#define REDIRECT(name) redirect(library, #name, reinterpret_cast<const void*>(&name))
    REDIRECT(xclProbe);
    REDIRECT(xclVersion);
    REDIRECT(xclOpen);
    REDIRECT(xclClose);
    REDIRECT(xclGetDeviceInfo2);
    REDIRECT(xclLockDevice);
    REDIRECT(xclUnlockDevice);
    REDIRECT(xclLoadXclBin);
    REDIRECT(xclOpenContext);
    REDIRECT(xclCloseContext);
    REDIRECT(xclAllocBO);
    REDIRECT(xclAllocUserPtrBO);
    REDIRECT(xclFreeBO);
    REDIRECT(xclGetBOProperties);
    REDIRECT(xclMapBO);
    REDIRECT(xclUnmapBO);
    REDIRECT(xclSyncBO);
    REDIRECT(xclCopyBO);
    REDIRECT(xclWriteBO);
    REDIRECT(xclReadBO);
    REDIRECT(xclExecBuf);
    REDIRECT(xclExecWait);
    REDIRECT(xclRead);
    REDIRECT(xclWrite);
    REDIRECT(xclRegRead);
    REDIRECT(xclRegWrite);
#undef REDIRECT
}

}  // namespace

void fd_xrt_opened(void* handle, unsigned card) {
    auto device = find<std::shared_ptr<CoreDevice> (*)(void*, unsigned)>(RTLD_DEFAULT, kMakeDevice)(handle, card);
    const std::lock_guard lock(devices_mutex);
    devices.emplace(handle, std::move(device));
}

void fd_xrt_closed(void* handle) {
    std::shared_ptr<CoreDevice> last;
    const std::lock_guard lock(devices_mutex);
    const auto found = devices.find(handle);
    if (found == devices.end()) return;
    last = std::move(found->second);
    devices.erase(found);
}

void fd_xrt_loaded(void* handle, const void* xclbin) {
    const auto device = find<std::shared_ptr<CoreDevice> (*)(void*)>(RTLD_DEFAULT, kFindDevice)(handle);
    find<void (*)(CoreDevice*, const void*)>(RTLD_DEFAULT, kRegister)(device.get(), xclbin);
}

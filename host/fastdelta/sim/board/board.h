// SPDX-License-Identifier: Apache-2.0
//
// C interface of the board model: one simulated accelerator card with device memory in banks and
// compute units that are Verilated kernels.
//
// Each compute unit has a clock of its own, which stands still while the unit has neither a
// command nor a register access; so cycle counts do not depend on the host's timing. Commands of
// a unit run one after the other on a thread of the unit; units run beside each other.
//
// Functions return 0 or a value >= 0 when they succeed and -1 when they fail; fd_last_error()
// then says why (per thread). All functions may be called from any thread, except that
// fd_board_destroy must be the last one and that banks, units and connections are set up first.
#ifndef FASTDELTA_BOARD_H
#define FASTDELTA_BOARD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FD_BOARD_ABI 2

typedef struct fd_board fd_board;

enum fd_command_state {  // numbers as XRT's ert_cmd_state
    FD_QUEUED = 2,
    FD_RUNNING = 3,
    FD_COMPLETED = 4,
    FD_ERROR = 5,    // the unit hangs since an earlier command, a register did not answer, or, when it does not
                     // hang, the start was refused: the host never acknowledged a run that it started by register
    FD_ABORTED = 6,  // the unit was reset
    FD_TIMED_OUT = 8
};

enum fd_event_kind {
    FD_OUTSIDE_BANKS = 0,     // burst outside the banks connected to the port; answered DECERR
    FD_INJECTED = 1,          // an injected fault struck; detail: its kind
    FD_REGISTER_ERROR = 2,    // register access answered with an error; detail: the response
    FD_UNWRITTEN = 3,         // read of memory that nothing wrote since it was allocated; detail: lines of 64 bytes
    FD_PROTOCOL_FIRST = 16,   // from here on: violations of AXI or of the kernel's contract
    FD_CROSSES_4K = 16,       // detail: bytes of the burst
    FD_BURST_TYPE = 17,       // not INCR; detail: AxBURST
    FD_BURST_SIZE = 18,       // beats are not as wide as the port; detail: AxSIZE
    FD_UNALIGNED = 19,        // address is not a multiple of the beat
    FD_UNSTABLE_ADDRESS = 20, // address channel changed or withdrawn before it was accepted
    FD_UNSTABLE_DATA = 21,    // write data changed or withdrawn before it was accepted
    FD_WRONG_LAST = 22,       // WLAST does not fit AxLEN; detail: beat index
    FD_VALID_IN_RESET = 23,   // detail: 0 address, 1 write data
    FD_DONE_TOO_EARLY = 24    // the unit was done before a write was answered; detail: how many
};

typedef struct {
    uint32_t kind;
    uint32_t compute_unit;
    int32_t port;  // index, or -1 for the control port
    uint32_t write;
    uint64_t address;
    uint64_t cycle;  // of the compute unit
    uint64_t detail;
} fd_event;

typedef struct {
    uint32_t state;
    uint32_t compute_unit;
    uint64_t cycles;      // from the start accepted to the interrupt (or to done read as set)
    uint64_t violations;  // protocol violations recorded while it ran
    uint64_t outside;     // bursts outside the connected banks while it ran
    uint64_t control_reads;  // reads of the control register by the host while it ran
    uint64_t unwritten;      // bursts that read unwritten memory while it ran, if report_unwritten is set
} fd_command;

typedef struct {
    uint64_t read_bursts, read_beats, read_bytes;
    uint64_t write_bursts, write_beats, write_bytes;  // bytes: those enabled by strobes
    uint64_t read_address_stalls;   // cycles in which the kernel waited with an address
    uint64_t read_data_stalls;      // cycles in which read data waited for the kernel
    uint64_t write_address_stalls;
    uint64_t write_data_stalls;
    uint64_t write_response_stalls; // cycles in which a response waited for the kernel
    uint64_t max_reads_outstanding, max_writes_outstanding;
} fd_port_statistics;

enum fd_fault_kind {  // of the memory behind a port
    FD_FAULT_SLVERR = 2,  // AXI response codes
    FD_FAULT_DECERR = 3,
    FD_FAULT_STUCK = 4,   // accepted, and not answered before the fault is cleared
    FD_FAULT_FLIP = 5     // one bit of the data is wrong, and nothing says so
};

enum fd_unit_fault_kind {  // of a compute unit while it runs a command
    FD_UNIT_DROPPED_INTERRUPT = 16,  // the interrupt at its end is lost
    FD_UNIT_STUCK = 17,  // never ends: nothing moves on its memory ports; its registers answer
    FD_UNIT_DEAD = 18    // its clock stands still: its registers do not answer either
};

typedef struct {
    uint32_t kind;
    uint32_t write;          // 0: reads, 1: writes
    uint64_t first_address;  // bursts that touch first_address .. last_address
    uint64_t last_address;
    uint64_t skip;           // matching bursts that go through before
    uint64_t count;          // matching bursts affected; 0: all
    uint64_t bit;            // FD_FAULT_FLIP: which bit of the burst, counted round
} fd_fault;

typedef struct {
    uint32_t kind;
    uint64_t skip;   // commands of the unit that run well before
    uint64_t count;  // commands affected; 0: all
} fd_unit_fault;

typedef struct {
    uint64_t bytes, used, buffers;
    uint64_t largest;  // bytes that the next buffer can have
} fd_bank_usage;

uint32_t fd_abi_version(void);
const char* fd_last_error(void);

fd_board* fd_board_create(void);
void fd_board_destroy(fd_board*);

int fd_add_bank(fd_board*, uint64_t base, uint64_t bytes);
int fd_add_compute_unit(fd_board*, const char* kernel_library, int chain);  // 1: ap_ctrl_chain, 0: ap_ctrl_hs
int fd_port_count(fd_board*, int compute_unit);
const char* fd_port_name(fd_board*, int compute_unit, int port);
int fd_port_bytes(fd_board*, int compute_unit, int port);
int fd_connect(fd_board*, int compute_unit, int port, int bank);

// Options, for all units: read_latency, write_latency, outstanding (cycles, cycles, bursts),
// address_waits_for_data (0, 1), stall_ar, stall_r, stall_aw, stall_w, stall_b (probability that
// a channel stalls in a cycle), seed, hang_cycles (cycles without a beat on any port after which
// a command is given up; 0: never), report_unwritten (0, 1: an event for each burst that reads
// memory which neither the host nor a unit has written since it was allocated).
int fd_set_option(fd_board*, const char* name, double value);

int fd_memory_write(fd_board*, uint64_t address, const void* data, uint64_t bytes);
int fd_memory_read(fd_board*, uint64_t address, void* data, uint64_t bytes);
int fd_flip_bit(fd_board*, uint64_t address, uint32_t bit);  // of a byte in device memory

// Buffers: whole pages of 4096 bytes, first fit. Memory that was not allocated can be used as well.
int fd_allocate(fd_board*, int bank, uint64_t bytes, uint64_t* address);  // 0: given, 1: no room
int fd_free(fd_board*, uint64_t address);
int fd_usage(fd_board*, int bank, fd_bank_usage*);
int fd_limit_bank(fd_board*, int bank, uint64_t bytes);  // as if the rest of it were in use

int fd_register_write(fd_board*, int compute_unit, uint32_t offset, uint32_t value);
int fd_register_read(fd_board*, int compute_unit, uint32_t offset, uint32_t* value);

// Start a unit with a register image: word i is written to offset 4 i, except the first four
// (control and interrupt registers). timeout_cycles 0: no limit but hang_cycles.
int64_t fd_submit(fd_board*, int compute_unit, const uint32_t* image, uint32_t words,
                  uint64_t timeout_cycles);
int fd_wait(fd_board*, int64_t command, double seconds);  // 1: ended, 0: still going on
// Waits until more than `seen` commands have ended on the board; returns how many have.
int64_t fd_wait_any(fd_board*, int64_t seen, double seconds);
int fd_command_info(fd_board*, int64_t command, fd_command* info);
int fd_command_take(fd_board*, int64_t command, fd_command* info);  // 1: ended, given and forgotten, 0: still going on
int fd_last_command(fd_board*, int compute_unit, fd_command* info);  // ended last; 1: given, 0: none

int fd_reset(fd_board*, int compute_unit);  // aborts its commands
// Aborts the commands of a unit without a reset: a running one leaves the unit hung.
int fd_abandon(fd_board*, int compute_unit);
// What the driver does when the process that used the card was killed: abandons the commands of
// every unit and frees all buffers.
int fd_kill_client(fd_board*);
// As if another process held the unit: commands wait, front ends refuse to open it.
int fd_set_busy(fd_board*, int compute_unit, int busy);
int fd_is_busy(fd_board*, int compute_unit);
int fd_clock(fd_board*, int compute_unit, uint64_t cycles);
int fd_is_hung(fd_board*, int compute_unit);
int64_t fd_cycles(fd_board*, int compute_unit);  // since it was made
int fd_statistics(fd_board*, int compute_unit, int port, fd_port_statistics*);
int fd_clear_statistics(fd_board*, int compute_unit);

int64_t fd_event_count(fd_board*);  // recorded, at most 1000, and counted beyond
int fd_event_get(fd_board*, int64_t index, fd_event*);  // 1: given, 0: there is none
int fd_clear_events(fd_board*);

int fd_inject(fd_board*, int compute_unit, int port, const fd_fault*);
int fd_inject_unit(fd_board*, int compute_unit, const fd_unit_fault*);
int fd_clear_faults(fd_board*, int compute_unit);

int fd_open_trace(fd_board*, int compute_unit, const char* path);  // FST

#ifdef __cplusplus
}
#endif
#endif

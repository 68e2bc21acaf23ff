// SPDX-License-Identifier: Apache-2.0
//
// What the simulator adds to XRT's functions: options, and the board model behind each card. Host
// code does not use these; tests and fastdelta.sim.xrt do.
#ifndef FASTDELTA_SHIM_H
#define FASTDELTA_SHIM_H

#include <stdint.h>

#include "board.h"

#ifdef __cplusplus
extern "C" {
#endif

unsigned fd_card_count(void);
const char* fd_card_name(unsigned card);
fd_board* fd_card_board(unsigned card);  // null: nothing is loaded; to be released
void fd_card_release_board(fd_board*);
const char* fd_card_units(unsigned card);  // names with spaces between, until the next call
int fd_card_set_option(unsigned card, const char* name, double value);  // as fd_set_option
int fd_card_power_cycle(unsigned card);  // as new; refused while buffers or contexts live
int64_t fd_card_live_buffers(unsigned card);

// Called when a card was opened or closed and when a container was loaded, if they are there:
// XRT's C++ layer wants to know (../shim_cpp).
__attribute__((weak)) void fd_xrt_opened(void* handle, unsigned card);
__attribute__((weak)) void fd_xrt_closed(void* handle);
__attribute__((weak)) void fd_xrt_loaded(void* handle, const void* xclbin);

#ifdef __cplusplus
}
#endif
#endif

// Large copies between pageable host memory and a device with memory of its own. Knows chunks and
// threads; when a copy is worth it, `transfer.cpp` decides.
//
// A driver stages such a copy through pinned memory by one thread, which is what limits it: 10 GB/s
// on a bus that moves 50. Here several threads do so, each a chunk at a time.
#pragma once

#include "runtime/memory.h"

namespace ocl {

// Copies at least as large as this are worth the threads.
constexpr size_t kBulkBytes = size_t(4) << 20;

// Returns once `source` may be changed; the device may still be copying.
void write_bulk(const Location& target, const void* source, size_t bytes);

// Blocks until `bytes` bytes at `source` are in host memory.
void read_bulk(void* target, const Location& source, size_t bytes);

}  // namespace ocl

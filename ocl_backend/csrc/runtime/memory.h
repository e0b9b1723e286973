// The address space and the caching allocator. Knows c10, not tensors.
//
// A buffer of OpenCL has no address, a tensor must have one. Every block therefore gets a made-up
// address that the processor cannot map (bit 62 set, not canonical), so that a stray access
// faults instead of corrupting:
//
//     0 1 | slot: 22 bits | byte offset: 40 bits
//
// `locate` turns any address inside a block back into (block, byte offset) with one table look-up.
#pragma once

#include <unordered_map>  // c10/core/CachingDeviceAllocator.h uses it and does not include it

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <functional>
#include <utility>

#include "runtime/buffers.h"

namespace ocl {

constexpr unsigned kOffsetBits = 40;

struct Block {
  cl_mem buffer;
  size_t size;       // bytes of the buffer, rounded up
  size_t requested;  // bytes asked for by the present owner
  uint32_t slot;
  c10::DeviceIndex device;
  void* pages = nullptr;  // that the buffer was made of
  uint64_t pool = 0;  // of a graph, which it returns to when it is freed; 0: the device's
  std::atomic<uint32_t> holds{0};    // by launches that are held back, or that always use it
  std::atomic<bool> dropped{false};  // freed, and waiting for those
  int32_t use = -1;      // its place among the uses of the chain of held launches, -1: none
  uint32_t waiting = 0;  // commands that use it and wait for programs
  std::atomic<uint64_t> ticket{0};  // of the last command that a thread submits (submitter.h)
  std::atomic<uint64_t> writes{0};  // commands enqueued so far that write to it
  std::atomic<bool> is_kept_of{false};  // something that was made of its contents is kept (kept.h)
  std::atomic<bool> is_table{false};  // nothing is written to it until it is freed
  std::atomic<bool> is_owned{false};  // allocated, and not freed
};

struct Location {
  Block* block = nullptr;  // null: not an address of this device
  size_t offset = 0;  // bytes
};

constexpr uint64_t kTag = uint64_t(1) << 62;
// Of every slot. Pages of this 32 MiB table are committed only as slots are used.
extern Block** const slots;

inline Location locate(const void* address) {
  const auto bits = reinterpret_cast<uint64_t>(address);
  if ((bits & kTag) == 0 || bits >> 63) return {};
  constexpr uint64_t kOneSlot = uint64_t(1) << kOffsetBits;
  return {slots[(bits & ~kTag) >> kOffsetBits], bits & (kOneSlot - 1)};
}
// Like `locate`, but raises for an address that is not ours; `what` names the argument.
Location locate_or_throw(const void* address, const char* what);

// Keeps the block of `address` from being handed out again until it is let go; null, and nothing,
// if that is no memory of `device`.
Block* hold_block(const void* address, c10::DeviceIndex device);
// The same for a block that a tensor of the caller's has.
inline void hold(Block& block) { block.holds.fetch_add(1, std::memory_order_relaxed); }
void let_go_blocks(c10::ArrayRef<Block*> blocks);
inline void let_go_block(Block* block) { let_go_blocks(block); }
// Whether the held block of `address` was freed meanwhile; null, for nothing to hold, was not.
inline bool is_dropped(const void* address) {
  const Block* block = locate(address).block;
  return block && block->dropped;
}
// Whether `address` lies in memory that was allocated and is not freed.
inline bool is_owned(const void* address) {
  const Block* block = locate(address).block;
  return block && block->is_owned;
}

// Counts a command that waits for programs as a user of the block of `address`, which is returned:
// until `stop_waiting` its buffer is not given back to the driver. Null if there is no block.
Block* start_waiting(const void* address);
void stop_waiting(Block* block);

// While one exists, this thread's memory is new: cached blocks may be in use by commands that are
// behind this thread's in order.
class FreshMemory {
 public:
  FreshMemory();
  ~FreshMemory();
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
};

// A pool of memory for graphs (graph.h): exists while they share it. Its blocks are the device's
// when the last one has left.
void share_pool(c10::DeviceIndex index, uint64_t pool);
void leave_pool(c10::DeviceIndex index, uint64_t pool);

// Counts the buffers given back to the driver: an argument remembered from before may be stale.
uint64_t release_generation();
// Waits for the device and gives every cached block back to the driver.
void empty_cache(c10::DeviceIndex index);

// Moves a storage to a block of `bytes` bytes, keeping what fits.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

// Memory of a device from the caching allocator. Raises `OutOfMemoryError`.
c10::DataPtr allocate(c10::DeviceIndex index, size_t bytes);
// The same, as torch asks for it (allocator.cpp).
c10::DeviceAllocator* allocator();
// Frees what `allocate` gave; null is ignored.
void free_memory(void* address);

// The figures of a device's pool; `change` may reset them.
using Stats = c10::CachingDeviceAllocator::DeviceStats;
void with_stats(c10::DeviceIndex index, const std::function<void(Stats&)>& change);
// Bytes that can still be allocated, and those of the device.
std::pair<size_t, size_t> free_and_total(c10::DeviceIndex index);

}  // namespace ocl

// Devices, the address space and the caching allocator. Knows c10, not tensors.
//
// A buffer of OpenCL has no address, a tensor must have one. Every block therefore gets a made-up
// address that the processor cannot map (bit 62 set, not canonical), so that a stray access
// faults instead of corrupting:
//
//     0 1 | slot: 22 bits | byte offset: 40 bits
//
// `locate` turns any address inside a block back into (block, byte offset) with one table look-up.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <mutex>
#include <string>

#include "runtime/opencl.h"

namespace ocl {

constexpr int kOffsetBits = 40;

// Tables by device are this long.
constexpr size_t kMostDevices = 64;

struct Device {
  cl_context context;
  cl_command_queue queue;
  std::string name;
  size_t total_bytes;        // the device's memory
  size_t largest_bytes;      // CL_DEVICE_MAX_MEM_ALLOC_SIZE
  bool doubles;              // cl_khr_fp64
  bool own_memory = false;   // not the host's
  std::mutex submission;     // setting arguments and enqueueing is one step
  std::atomic<const char*> last_kernel{nullptr};  // named when an asynchronous failure surfaces
  std::atomic<int64_t> faults{0};            // address of the record that `faults.h` speaks of
  std::atomic<bool> may_have_faulted{false};  // a kernel that writes there was launched
};

struct Block {
  cl_mem buffer;
  size_t size;       // bytes of the buffer, rounded up
  size_t requested;  // bytes asked for by the present owner
  uint32_t slot;
  c10::DeviceIndex device;
  uint32_t holds = 0;    // by launches that are held back, or that always use it
  bool dropped = false;  // freed, and waiting for those
  bool awaited = false;  // one of them writes here
};

struct Location {
  Block* block = nullptr;  // null: not an address of this device
  size_t offset = 0;       // bytes
};

// Opens the devices where that was left to first use; raises what prevented it.
void ensure_open();
bool is_closed();
// How many devices there are, as far as can be said without opening them: autograd keeps a thread
// for each from the first backward pass on. Later openings keep to it.
int promised_device_count();

int device_count();
// Returns `index`; raises if there is no such device, once all are open.
c10::DeviceIndex checked(c10::DeviceIndex index);
Device& device_at(c10::DeviceIndex index);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);

Location locate(const void* address);
// Like `locate`, but raises for an address that is not ours; `what` names the argument.
Location locate_or_throw(const void* address, const char* what);

// Keeps the block of `address` from being handed out again until it is let go; null, and nothing,
// if that is no memory of `device`.
Block* hold_block(const void* address, c10::DeviceIndex device);
void let_go_block(Block* block);
// Whether the held block of `address` was freed meanwhile.
bool is_dropped(const void* address);

// Counts the buffers given back to the driver: an argument remembered from before may be stale.
uint64_t release_generation();
// Waits for the device and gives every cached block back to the driver.
void empty_cache(c10::DeviceIndex index);
// Raises in a forked child, where the parent's runtime threads do not exist.
void check_not_forked();
bool in_forked_child();

// Moves a storage to a block of `bytes` bytes, keeping what fits.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

// Memory of a device from the caching allocator. Raises `OutOfMemoryError`.
c10::DataPtr allocate(c10::DeviceIndex index, size_t bytes);
c10::DeviceAllocator* allocator();

}  // namespace ocl

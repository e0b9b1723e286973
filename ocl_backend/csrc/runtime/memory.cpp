// The caching allocator: one OpenCL buffer per block, size classes, free lists per device.
// It never waits for the device on the fast path: each device has one in-order queue, so a freed
// block may be handed out again while the last kernel that used it is still running.
#include "runtime/memory.h"

#include <c10/util/ScopeExit.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/history.h"
#include "runtime/kept.h"
#include "runtime/observer.h"
#include "runtime/submitter.h"

namespace ocl {

namespace {

constexpr uint64_t kTag = uint64_t(1) << 62;
constexpr uint64_t kOneSlot = uint64_t(1) << kOffsetBits;
constexpr uint32_t kSlots = 1u << 22;
constexpr size_t kSmallest = 512;
constexpr size_t kLargeFrom = size_t(16) << 20;
constexpr size_t kLargeStep = size_t(2) << 20;

struct Pool {
  std::multimap<size_t, Block*> free;
  c10::CachingDeviceAllocator::DeviceStats stats;
  std::optional<size_t> limit;  // none: all that the device has
};

// Everything here is leaked on purpose: tensors die after static destructors have run.
std::array<Pool, kMostDevices>& pools() {
  static auto* all = new std::array<Pool, kMostDevices>();
  return *all;
}
std::mutex& pool_mutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}
// Pages of this 32 MiB table are committed only as slots are used.
Block** slots() {
  static auto* table = static_cast<Block**>(std::calloc(kSlots, sizeof(Block*)));
  return table;
}

thread_local bool is_fresh = false;  // a `FreshMemory` exists
std::vector<uint32_t> free_slots;
uint32_t next_slot = 0;
std::atomic<uint64_t> generation{0};

// Eight classes per power of two up to 16 MiB (at most 1/8 wasted), multiples of 2 MiB above.
size_t size_class(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  size_t step = bytes < kLargeFrom ? kSmallest : kLargeStep;
  while (bytes < kLargeFrom && 16 * step <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

void* address_of(const Block& block) {
  return reinterpret_cast<void*>(kTag | uint64_t(block.slot) << kOffsetBits);
}

void for_each_pool_of(size_t size, c10::CachingDeviceAllocator::StatArray& stats, int64_t amount) {
  using c10::CachingAllocator::StatType;
  const auto kind = size < (1 << 20) ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  for (const auto type : {StatType::AGGREGATE, kind}) {
    auto& stat = stats[size_t(type)];
    amount > 0 ? stat.increase(size_t(amount)) : stat.decrease(size_t(-amount));
  }
}

void count_segment(Pool& pool, size_t size, int sign) {
  for_each_pool_of(size, pool.stats.segment, sign);
  for_each_pool_of(size, pool.stats.reserved_bytes, sign * int64_t(size));
  ++(sign > 0 ? pool.stats.num_device_alloc : pool.stats.num_device_free);
}

void count_use(Pool& pool, const Block& block, int sign) {
  for_each_pool_of(block.size, pool.stats.allocation, sign);
  for_each_pool_of(block.size, pool.stats.active, sign);
  for_each_pool_of(block.size, pool.stats.allocated_bytes, sign * int64_t(block.size));
  for_each_pool_of(block.size, pool.stats.active_bytes, sign * int64_t(block.size));
  for_each_pool_of(block.size, pool.stats.requested_bytes, sign * int64_t(block.requested));
}

size_t current_of(const c10::CachingDeviceAllocator::StatArray& stats) {
  return size_t(stats[0].current);
}

size_t limit_of(c10::DeviceIndex index) {
  return pools()[size_t(index)].limit.value_or(device_at(index).total_bytes);
}

Block* take_cached(Pool& pool, size_t size) {
  const auto found = pool.free.lower_bound(size);
  // a block a quarter larger than needed is better reused than left lying
  if (found == pool.free.end() || found->first > size + size / 4) return nullptr;
  Block* block = found->second;
  pool.free.erase(found);
  return block;
}

// Drivers allocate at first use, so the first bytes are written here, where failing is handled.
cl_int create_buffer(Device& device, size_t size, cl_mem* buffer) {
  cl_int status = CL_SUCCESS;
  *buffer = cl.clCreateBuffer(device.context, CL_MEM_READ_WRITE, size, nullptr, &status);
  if (status != CL_SUCCESS) return status;
  const cl_uint zero = 0;
  status = cl.clEnqueueFillBuffer(device.queue, *buffer, &zero, sizeof zero, 0, sizeof zero, 0,
                                  nullptr, nullptr);
  if (status != CL_SUCCESS) cl.clReleaseMemObject(*buffer);
  return status;
}

Block* create_block(c10::DeviceIndex index, size_t size, cl_int* status) {
  Pool& pool = pools()[index];
  *status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (current_of(pool.stats.reserved_bytes) + size > limit_of(index)) return nullptr;
  if (size > device_at(index).enforced_bytes) return nullptr;
  if (free_slots.empty() && next_slot == kSlots) return nullptr;
  cl_mem buffer = nullptr;
  *status = create_buffer(device_at(index), size, &buffer);
  if (*status != CL_SUCCESS) return nullptr;
  uint32_t slot = next_slot;
  if (free_slots.empty()) {
    ++next_slot;
  } else {
    slot = free_slots.back();
    free_slots.pop_back();
  }
  auto* block = new Block{buffer, size, 0, slot, index};
  slots()[slot] = block;
  count_segment(pool, size, +1);
  note_memory(MemoryEvent::kSegment, index, address_of(*block), size);
  return block;
}

void release_cached(c10::DeviceIndex index) {
  Pool& pool = pools()[index];
  if (pool.free.empty()) return;
  cl.clFinish(device_at(index).queue);
  for (auto it = pool.free.begin(); it != pool.free.end();) {
    Block* block = it->second;
    if (block->waiting || !is_submitted(index, block->ticket.load(std::memory_order_relaxed))) {
      ++it;
      continue;
    }
    cl.clReleaseMemObject(block->buffer);
    count_segment(pool, block->size, -1);
    note_memory(MemoryEvent::kSegmentFree, index, address_of(*block), block->size);
    slots()[block->slot] = nullptr;
    free_slots.push_back(block->slot);
    delete block;
    it = pool.free.erase(it);
  }
  ++generation;
}

std::string readable(size_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f MiB (%zu B)", double(bytes) / (1 << 20), bytes);
  return text;
}

[[noreturn]] void throw_out_of_memory(c10::DeviceIndex index, size_t bytes, cl_int status) {
  const Device& device = device_at(index);
  Pool& pool = pools()[index];
  const size_t allocated = current_of(pool.stats.allocated_bytes);
  const size_t reserved = current_of(pool.stats.reserved_bytes);
  ++pool.stats.num_ooms;
  note_memory(MemoryEvent::kOom, index, nullptr, bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "ocl out of memory. Tried to allocate ",
                   readable(bytes), ". ocl:", int(index), " (", device.name,
                   ") has a total capacity of ", readable(device.total_bytes), " of which ",
                   readable(limit_of(index) - std::min(limit_of(index), reserved)),
                   " is free. Of the allocated memory ", readable(allocated),
                   " is allocated by PyTorch, and ", readable(reserved - allocated),
                   " is reserved by PyTorch but unallocated; the limit set is ",
                   readable(limit_of(index)), ", the largest single buffer ",
                   readable(device.largest_bytes), " (", error_name(status),
                   "). The cache was emptied and did not help. Use a smaller batch, delete "
                   "tensors, or raise torch.ocl.set_per_process_memory_fraction.");
}

Block* take(c10::DeviceIndex index, size_t bytes) {
  check_not_forked();
  checked(index);
  const size_t size = size_class(bytes);
  std::unique_lock<std::mutex> lock(pool_mutex());
  Pool& pool = pools()[index];
  cl_int status = CL_SUCCESS;
  Block* block = is_fresh ? nullptr : take_cached(pool, size);
  if (!block) block = create_block(index, size, &status);
  if (!block) {
    ++pool.stats.num_alloc_retries;
    lock.unlock();
    observer().short_of_memory(index);  // memory of held launches is free once they ran
    forget_kept_on(index);
    if (const int failed = drain(index)) raise(failed);
    lock.lock();
    release_cached(index);
    block = create_block(index, size, &status);
  }
  if (!block) throw_out_of_memory(index, bytes, status);
  block->requested = bytes;
  count_use(pool, *block, +1);
  return block;
}

}  // namespace

void free_memory(void* address) {
  if (!address || in_forked_child()) return;
  Block* block = locate(address).block;
  // NOLINTNEXTLINE(clang-analyzer-core.*): what `allocate` gave has a block
  if (block->is_kept_of.exchange(false, std::memory_order_relaxed)) forget_kept_of(*block);
  note_memory(MemoryEvent::kFree, block->device, address, block->size);
  tell_memory_events();  // before another thread may have it
  const std::lock_guard<std::mutex> lock(pool_mutex());
  Pool& pool = pools()[block->device];
  count_use(pool, *block, -1);
  block->dropped = block->holds > 0;
  if (!block->dropped) pool.free.emplace(block->size, block);
}

uint64_t release_generation() { return generation.load(std::memory_order_relaxed); }
Location locate(const void* address) {
  const auto bits = reinterpret_cast<uint64_t>(address);
  if ((bits & kTag) == 0 || bits >> 63) return {};
  return {slots()[(bits & ~kTag) >> kOffsetBits], bits & (kOneSlot - 1)};
}

Block* hold_block(const void* address, c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  Block* block = locate(address).block;
  if (!block || block->device != device) return nullptr;
  ++block->holds;
  return block;
}

void let_go_block(Block* block) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  if (--block->holds) return;
  if (!block->dropped) return;
  block->dropped = false;
  pools()[block->device].free.emplace(block->size, block);
}

Block* start_waiting(const void* address) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  Block* block = locate(address).block;
  if (block) ++block->waiting;
  return block;
}

void stop_waiting(Block* block) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  --block->waiting;
}

FreshMemory::FreshMemory() { is_fresh = true; }
FreshMemory::~FreshMemory() { is_fresh = false; }

bool is_dropped(const void* address) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  const Block* block = locate(address).block;
  return block && block->dropped;
}

Location locate_or_throw(const void* address, const char* what) {
  const Location found = locate(address);
  TORCH_CHECK(found.block, what, ": ", address, " is not memory of an ocl device");
  return found;
}

void empty_cache(c10::DeviceIndex index) {
  check_not_forked();
  forget_kept_on(index);
  {
    const std::lock_guard<std::mutex> lock(pool_mutex());
    release_cached(index);
  }
  tell_memory_events();
}

void with_stats(c10::DeviceIndex index, const std::function<void(Stats&)>& change) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  change(pools().at(size_t(index)).stats);
}

std::pair<size_t, size_t> free_and_total(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  const size_t reserved = current_of(pools().at(size_t(index)).stats.reserved_bytes);
  const size_t limit = limit_of(index);
  return {limit - std::min(limit, reserved), device_at(index).total_bytes};
}

c10::DataPtr allocate(c10::DeviceIndex index, size_t bytes) {
  const c10::Device device(c10::DeviceType::PrivateUse1, index);
  if (bytes == 0) return {nullptr, nullptr, &free_memory, device};
  const auto tell = c10::make_scope_exit(&tell_memory_events);  // also that there is none left
  const Block& block = *take(index, bytes);
  void* address = address_of(block);
  note_memory(MemoryEvent::kAlloc, index, address, block.size);
  observer().allocated(address, bytes);
  return {address, address, &free_memory, device};
}

}  // namespace ocl

extern "C" {

// Writes four words for each block of a device: its address, its bytes, the bytes asked for, and 0
// (allocated), 1 (freed, but used by a launch that is held back) or 2 (cached). At most `room`
// blocks are written; returns how many there are.
int64_t ocl_memory_blocks(int device, int64_t* words, int64_t room) {
  const std::lock_guard<std::mutex> lock(ocl::pool_mutex());
  std::set<const ocl::Block*> cached;
  for (const auto& [size, block] : ocl::pools()[size_t(device)].free) cached.insert(block);
  int64_t count = 0;
  for (uint32_t slot = 0; slot < ocl::next_slot; ++slot) {
    const ocl::Block* block = ocl::slots()[slot];
    if (!block || block->device != device || count++ >= room) continue;
    *words++ = reinterpret_cast<int64_t>(ocl::address_of(*block));
    *words++ = int64_t(block->size);
    *words++ = int64_t(block->requested);
    *words++ = cached.count(block) ? 2 : block->dropped ? 1 : 0;
  }
  return count;
}

void ocl_set_memory_limit(int device, size_t bytes) {
  const std::lock_guard<std::mutex> lock(ocl::pool_mutex());
  ocl::pools()[size_t(device)].limit = bytes;
}
}

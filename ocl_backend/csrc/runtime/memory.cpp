// The caching allocator: one OpenCL buffer per block, size classes, free lists per device.
// It never waits for the device on the fast path: each device has one in-order queue, so a freed
// block may be handed out again while the last kernel that used it is still running.
#include "runtime/memory.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/graph.h"
#include "runtime/history.h"
#include "runtime/kept.h"
#include "runtime/observer.h"
#include "runtime/submitter.h"

namespace ocl {

namespace {

constexpr uint32_t kSlots = 1u << 22;
constexpr size_t kSmallest = 512;
constexpr size_t kLargeFrom = size_t(16) << 20;
constexpr size_t kLargeStep = size_t(2) << 20;

using Free = std::map<size_t, std::vector<Block*>>;  // by size; a size stays when it has none left

// Of the graphs that share it.
struct GraphPool {
  Free free;
  int graphs = 0;
};

struct Pool {
  Free free;
  std::map<uint64_t, GraphPool> of_graphs;
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

// Calls `change` with the places of a size among the figures: of all sizes, and of its kind.
template <typename Change>
void for_each_pool_of(size_t size, Change change) {
  using c10::CachingAllocator::StatType;
  change(size_t(StatType::AGGREGATE));
  change(size_t(size < (1 << 20) ? StatType::SMALL_POOL : StatType::LARGE_POOL));
}

void count_segment(Pool& pool, size_t size, bool is_new) {
  Stats& stats = pool.stats;
  for_each_pool_of(size, [&](size_t kind) {
    is_new ? stats.segment[kind].increase(1) : stats.segment[kind].decrease(1);
    is_new ? stats.reserved_bytes[kind].increase(size) : stats.reserved_bytes[kind].decrease(size);
  });
  ++(is_new ? stats.num_device_alloc : stats.num_device_free);
}

// Active blocks are those that are allocated: `with_stats` copies the figures.
void count_taken(Stats& stats, const Block& block) {
  for_each_pool_of(block.size, [&](size_t kind) {
    stats.allocation[kind].increase(1);
    stats.allocated_bytes[kind].increase(block.size);
    stats.requested_bytes[kind].increase(block.requested);
  });
}

void count_freed(Stats& stats, const Block& block) {
  for_each_pool_of(block.size, [&](size_t kind) {
    stats.allocation[kind].decrease(1);
    stats.allocated_bytes[kind].decrease(block.size);
    stats.requested_bytes[kind].decrease(block.requested);
  });
}

size_t current_of(const c10::CachingDeviceAllocator::StatArray& stats) {
  return size_t(stats[0].current);
}

size_t limit_of(c10::DeviceIndex index) {
  return pools()[size_t(index)].limit.value_or(device_at(index).total_bytes);
}

// The largest block that serves an allocation. One a quarter larger is better reused than left
// lying. Where sizes vary, blocks of all classes would gather, five times what is ever allocated:
// once there are twice as many bytes, larger blocks serve, too, before a new one is made.
size_t largest_for(const Pool& pool, size_t size) {
  const auto& stats = pool.stats;
  const bool is_plenty = stats.reserved_bytes[0].current > 2 * stats.allocated_bytes[0].peak;
  return is_plenty ? 4 * size : size + size / 4;
}

Block* take_cached(Free& free, size_t size, size_t most) {
  for (auto at = free.lower_bound(size); at != free.end() && at->first <= most; ++at) {
    auto& blocks = at->second;
    if (blocks.empty()) continue;
    Block* block = blocks.back();
    blocks.pop_back();
    return block;
  }
  return nullptr;
}

// Lets a block that nothing uses be handed out again.
void give_back(Block* block) {
  Pool& pool = pools()[block->device];
  const auto graphs = pool.of_graphs.find(block->pool);
  if (graphs == pool.of_graphs.end()) block->pool = 0;
  (block->pool ? graphs->second.free : pool.free)[block->size].push_back(block);
}

// A free block of the pool that this thread takes memory of.
Block* take_free(Pool& pool, size_t size, uint64_t of_graphs) {
  const size_t most = largest_for(pool, size);
  Block* block = of_graphs ? take_cached(pool.of_graphs[of_graphs].free, size, most) : nullptr;
  return block ? block : take_cached(pool.free, size, most);
}

Block* create_block(c10::DeviceIndex index, size_t size, cl_int* status) {
  Pool& pool = pools()[index];
  *status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (current_of(pool.stats.reserved_bytes) + size > limit_of(index)) return nullptr;
  if (size > device_at(index).enforced_bytes) return nullptr;
  if (free_slots.empty() && next_slot == kSlots) return nullptr;
  Buffer made;
  *status = create_buffer(device_at(index), size, &made);
  if (*status != CL_SUCCESS) return nullptr;
  uint32_t slot = next_slot;
  if (free_slots.empty()) {
    ++next_slot;
  } else {
    slot = free_slots.back();
    free_slots.pop_back();
  }
  auto* block = new Block{made.handle, size, 0, slot, index, made.pages};
  slots[slot] = block;
  count_segment(pool, size, true);
  note_memory(MemoryEvent::kSegment, index, address_of(*block), size);
  return block;
}

void release_cached(c10::DeviceIndex index) {
  Pool& pool = pools()[index];
  if (pool.free.empty()) return;
  cl.clFinish(device_at(index).queue);
  const auto is_released = [&](Block* block) {
    if (block->waiting || !is_submitted(index, block->ticket.load(std::memory_order_relaxed)))
      return false;
    release_buffer({block->buffer, block->pages});
    count_segment(pool, block->size, false);
    note_memory(MemoryEvent::kSegmentFree, index, address_of(*block), block->size);
    slots[block->slot] = nullptr;
    free_slots.push_back(block->slot);
    delete block;
    return true;
  };
  for (auto at = pool.free.begin(); at != pool.free.end();) {
    auto& blocks = at->second;
    blocks.erase(std::remove_if(blocks.begin(), blocks.end(), is_released), blocks.end());
    at = blocks.empty() ? pool.free.erase(at) : std::next(at);
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
  const uint64_t of_graphs = pool_here(index);
  Block* block = is_fresh ? nullptr : take_free(pool, size, of_graphs);
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
  block->is_table = false;
  block->is_owned = true;
  block->pool = of_graphs;
  count_taken(pool.stats, *block);
  return block;
}

}  // namespace

Block** const slots = static_cast<Block**>(std::calloc(kSlots, sizeof(Block*)));

void free_memory(void* address) {
  if (!address || in_forked_child()) return;
  Block* block = locate(address).block;
  // NOLINTNEXTLINE(clang-analyzer-core.*): what `allocate` gave has a block
  if (block->is_kept_of.exchange(false, std::memory_order_relaxed)) forget_kept_of(*block);
  note_memory(MemoryEvent::kFree, block->device, address, block->size);
  tell_memory_events();  // before another thread may have it
  const std::lock_guard<std::mutex> lock(pool_mutex());
  Pool& pool = pools()[block->device];
  count_freed(pool.stats, *block);
  block->is_owned = false;
  block->dropped = block->holds > 0;
  if (!block->dropped) give_back(block);
}

uint64_t release_generation() { return generation.load(std::memory_order_relaxed); }

Block* hold_block(const void* address, c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  Block* block = locate(address).block;
  if (!block || block->device != device) return nullptr;
  hold(*block);
  return block;
}

void let_go_blocks(c10::ArrayRef<Block*> blocks) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  for (Block* block : blocks)
    if (!--block->holds && block->dropped.exchange(false)) give_back(block);
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

void share_pool(c10::DeviceIndex index, uint64_t pool) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  ++pools()[size_t(index)].of_graphs[pool].graphs;
}

void leave_pool(c10::DeviceIndex index, uint64_t pool) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  auto& all = pools()[size_t(index)].of_graphs;
  const auto left = all.find(pool);
  if (--left->second.graphs) return;
  const Free free = std::move(left->second.free);
  all.erase(left);
  for (const auto& [size, blocks] : free)
    for (Block* block : blocks) give_back(block);
}

FreshMemory::FreshMemory() { is_fresh = true; }
FreshMemory::~FreshMemory() { is_fresh = false; }

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
  Stats& stats = pools().at(size_t(index)).stats;
  stats.active = stats.allocation;
  stats.active_bytes = stats.allocated_bytes;
  change(stats);
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
  for (const auto& [size, blocks] : ocl::pools()[size_t(device)].free)
    cached.insert(blocks.begin(), blocks.end());
  for (const auto& [number, graphs] : ocl::pools()[size_t(device)].of_graphs)
    for (const auto& [size, blocks] : graphs.free) cached.insert(blocks.begin(), blocks.end());
  int64_t count = 0;
  for (uint32_t slot = 0; slot < ocl::next_slot; ++slot) {
    const ocl::Block* block = ocl::slots[slot];
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

// The caching allocator: one OpenCL buffer per block, size classes, free lists per device.
// It never waits for the device on the fast path: each device has one in-order queue, so a freed
// block may be handed out again while the last kernel that used it is still running.
#include "runtime/memory.h"

#include "fusion/held.h"
#include "dispatch/operators.h"
#include "runtime/pinned.h"
#include "profiler/profile.h"
#include "fusion/recipe.h"
#include "runtime/transfer.h"

#include <pthread.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <vector>

namespace ocl {

namespace {

constexpr uint64_t kTag = uint64_t(1) << 62;
constexpr uint32_t kSlots = 1u << 22;
constexpr size_t kSmallest = 512;
constexpr size_t kLargeFrom = size_t(16) << 20;
constexpr size_t kLargeStep = size_t(2) << 20;

struct Pool {
  std::multimap<size_t, Block*> free;
  c10::CachingDeviceAllocator::DeviceStats stats;
  size_t limit = 0;
};

// Everything here is leaked on purpose: tensors die after static destructors have run.
std::deque<Device>& devices() {
  static auto* list = new std::deque<Device>();
  return *list;
}
std::deque<Pool>& pools() {
  static auto* list = new std::deque<Pool>();
  return *list;
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

std::vector<uint32_t> free_slots;
uint32_t next_slot = 0;
std::atomic<uint64_t> generation{0};
bool forked = false;
void (*opener)() = nullptr;
std::string opening_error;
int promised = 0;
bool is_promise_taken = false;
thread_local c10::DeviceIndex current = 0;

// Eight classes per power of two up to 16 MiB (at most 1/8 wasted), multiples of 2 MiB above.
size_t size_class(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  size_t step = kLargeStep;
  if (bytes < kLargeFrom) {
    const size_t power = size_t(1) << (63 - __builtin_clzll(bytes));
    step = std::max(power / 8, kSmallest);
  }
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
  status = cl.clEnqueueFillBuffer(
      device.queue, *buffer, &zero, sizeof zero, 0, sizeof zero, 0, nullptr, nullptr);
  if (status != CL_SUCCESS) cl.clReleaseMemObject(*buffer);
  return status;
}

Block* create_block(c10::DeviceIndex index, size_t size, cl_int* status) {
  Pool& pool = pools()[index];
  *status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (current_of(pool.stats.reserved_bytes) + size > pool.limit) return nullptr;
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
  return block;
}

void release_cached(c10::DeviceIndex index) {
  Pool& pool = pools()[index];
  if (pool.free.empty()) return;
  cl.clFinish(device_at(index).queue);
  for (const auto& [size, block] : pool.free) {
    cl.clReleaseMemObject(block->buffer);
    count_segment(pool, size, -1);
    slots()[block->slot] = nullptr;
    free_slots.push_back(block->slot);
    delete block;
  }
  pool.free.clear();
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
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "ocl out of memory. Tried to allocate ", readable(bytes), ". ocl:",
      int(index), " (", device.name, ") has a total capacity of ", readable(device.total_bytes),
      " of which ", readable(pool.limit - std::min(pool.limit, reserved)),
      " is free. Of the allocated memory ", readable(allocated), " is allocated by PyTorch, and ",
      readable(reserved - allocated), " is reserved by PyTorch but unallocated; the limit set is ",
      readable(pool.limit), ", the largest single buffer ", readable(device.largest_bytes), " (",
      error_name(status), "). The cache was emptied and did not help. Use a smaller batch, delete "
      "tensors, or raise torch.ocl.set_per_process_memory_fraction.");
}

Block* take(c10::DeviceIndex index, size_t bytes) {
  check_not_forked();
  checked(index);
  const size_t size = size_class(bytes);
  std::unique_lock<std::mutex> lock(pool_mutex());
  Pool& pool = pools()[index];
  cl_int status = CL_SUCCESS;
  Block* block = take_cached(pool, size);
  if (!block) block = create_block(index, size, &status);
  if (!block) {
    ++pool.stats.num_alloc_retries;
    lock.unlock();
    settle_held();  // what it used may be free then
    lock.lock();
    release_cached(index);
    block = create_block(index, size, &status);
  }
  if (!block) throw_out_of_memory(index, bytes, status);
  block->requested = bytes;
  count_use(pool, *block, +1);
  return block;
}

void give_back(void* address) {
  if (!address || forked) return;
  const std::lock_guard<std::mutex> lock(pool_mutex());
  Block* block = locate(address).block;
  Pool& pool = pools()[block->device];
  count_use(pool, *block, -1);
  block->dropped = block->holds > 0;
  if (!block->dropped) pool.free.emplace(block->size, block);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return ocl::allocate(current, bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    copy(target, source, bytes);
  }

  bool initialized() override { return is_closed() || device_count() > 0; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    for (int index = 0; index < device_count(); ++index) ocl::empty_cache(c10::DeviceIndex(index));
    empty_pinned_cache();
  }
  // One in-order queue per device: a block is never reused ahead of its last reader.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const std::lock_guard<std::mutex> lock(pool_mutex());
    return pools().at(index).stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    const std::lock_guard<std::mutex> lock(pool_mutex());
    auto& stats = pools().at(index).stats;
    for (auto* array : arrays(stats))
      for (auto& stat : *array) stat.reset_accumulated();
    stats.num_alloc_retries = stats.num_ooms = 0;
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    const std::lock_guard<std::mutex> lock(pool_mutex());
    for (auto* array : arrays(pools().at(index).stats))
      for (auto& stat : *array) stat.reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const std::lock_guard<std::mutex> lock(pool_mutex());
    const Pool& pool = pools().at(index);
    const size_t reserved = current_of(pool.stats.reserved_bytes);
    return {pool.limit - std::min(pool.limit, reserved), device_at(index).total_bytes};
  }

 private:
  static std::array<c10::CachingDeviceAllocator::StatArray*, 7> arrays(
      c10::CachingDeviceAllocator::DeviceStats& s) {
    return {&s.allocation, &s.segment, &s.active, &s.allocated_bytes, &s.reserved_bytes,
            &s.active_bytes, &s.requested_bytes};
  }
};

}  // namespace

void ensure_open() {
  if (!opener) return;
  // no lock: the opener needs the interpreter, which a waiting thread may hold; imports are
  // serialised there
  opener();
  TORCH_CHECK(opening_error.empty(), opening_error);
}

bool is_closed() { return opener != nullptr; }

int promised_device_count() {
  if (!is_closed()) return device_count();
  is_promise_taken = true;
  return promised;
}

int device_count() { return int(devices().size()); }

c10::DeviceIndex checked(c10::DeviceIndex index) {
  ensure_open();
  TORCH_CHECK(index >= 0 && index < device_count(), "there is no device ocl:", int(index), "; ",
              device_count(), " OpenCL device(s) were found. `oclgen doctor` says what was tried.");
  return index;
}

Device& device_at(c10::DeviceIndex index) { return devices()[size_t(index)]; }
c10::DeviceIndex current_device() { return current; }
void set_current_device(c10::DeviceIndex index) { current = index; }
uint64_t release_generation() { return generation.load(std::memory_order_relaxed); }
bool in_forked_child() { return forked; }

Location locate(const void* address) {
  const auto bits = reinterpret_cast<uint64_t>(address);
  if ((bits & kTag) == 0 || bits >> 63) return {};
  return {slots()[(bits & ~kTag) >> kOffsetBits], bits & ((uint64_t(1) << kOffsetBits) - 1)};
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
  block->awaited = false;
  if (!block->dropped) return;
  block->dropped = false;
  pools()[block->device].free.emplace(block->size, block);
}

bool is_dropped(const void* address) {
  const std::lock_guard<std::mutex> lock(pool_mutex());
  return locate(address).block->dropped;
}

Location locate_or_throw(const void* address, const char* what) {
  const Location found = locate(address);
  TORCH_CHECK(found.block, what, ": ", address, " is not memory of an ocl device");
  return found;
}

void empty_cache(c10::DeviceIndex index) {
  check_not_forked();
  const std::lock_guard<std::mutex> lock(pool_mutex());
  release_cached(index);
}

void check_not_forked() {
  TORCH_CHECK(!forked, "an OpenCL device cannot be used in a forked child of the process that "
              "opened it. Start the child with the 'spawn' method.");
}

c10::DataPtr allocate(c10::DeviceIndex index, size_t bytes) {
  const c10::Device device(c10::DeviceType::PrivateUse1, index);
  if (bytes == 0) return {nullptr, nullptr, &give_back, device};
  void* address = address_of(*take(index, bytes));
  note_allocated(address, bytes);
  return {address, address, &give_back, device};
}

c10::DeviceAllocator* allocator() {
  static auto* instance = new Allocator();
  return instance;
}

}  // namespace ocl

extern "C" {

// Makes torch know the device; the devices themselves may come later.
void ocl_register() {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, ocl::allocator());
  ocl::register_device();
  ocl::register_profiler();
  // a child of a process that opened no device may open its own
  pthread_atfork(nullptr, nullptr, [] { ocl::forked = ocl::device_count() > 0; });
}

// Leaves the opening of the devices to `opener`, called at first use; `promise` is how many it is
// expected to find. Null: they are open.
void ocl_open_later(void (*opener)(), int promise) {
  ocl::opener = opener;
  ocl::promised = promise;
}

// What prevented the opening; "" before another try.
void ocl_set_opening_error(const char* text) { ocl::opening_error = text; }

// Binds the OpenCL entry points; returns the name of a missing one, or null.
const char* ocl_bind(const char* loader) { return ocl::bind(loader); }

// How many devices can be added: not more than were promised, if somebody relies on that.
int ocl_room() { return ocl::is_promise_taken ? ocl::promised : int(ocl::kMostDevices); }

void ocl_add_device(void* context, void* queue, const char* name, size_t total, size_t largest,
                    int doubles) {
  auto& device = ocl::devices().emplace_back();
  device.context = static_cast<ocl::cl_context>(context);
  device.queue = static_cast<ocl::cl_command_queue>(queue);
  device.name = name;
  device.total_bytes = total;
  device.largest_bytes = largest;
  device.doubles = doubles != 0;
  ocl::pools().emplace_back().limit = total;
}

// Whether the device's memory is not the host's, so that large copies go through pinned memory.
void ocl_set_own_memory(int device, int own) { ocl::devices()[size_t(device)].own_memory = own; }

void ocl_set_memory_limit(int device, size_t bytes) {
  const std::lock_guard<std::mutex> lock(ocl::pool_mutex());
  ocl::pools()[size_t(device)].limit = bytes;
}
}

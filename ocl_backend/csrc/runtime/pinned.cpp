// The pinned allocator: host-visible OpenCL buffers, mapped once and kept for reuse.
// A freed block is handed out again only when every command enqueued before has finished, since a
// non-blocking copy may still be reading it.
#include "runtime/pinned.h"

#include <unordered_map>  // the next ones use it

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <map>
#include <vector>

#include "runtime/transfer.h"

namespace ocl {

namespace {

constexpr size_t kPage = 4096;

struct PinnedBlock {
  cl_mem buffer;
  c10::DeviceIndex device;  // whose context it belongs to; every device may copy from it
  size_t size;
  std::vector<cl_event> pending;  // one marker per device; empty while in use
};

struct Figures {
  c10::CachingAllocator::Stat allocations;      // blocks, in use and free
  c10::CachingAllocator::Stat allocated_bytes;  // of them
  c10::CachingAllocator::Stat active_requests;  // blocks in use
  c10::CachingAllocator::Stat active_bytes;     // of them
  std::array<c10::CachingAllocator::Stat*, 4> all() {
    return {&allocations, &allocated_bytes, &active_requests, &active_bytes};
  }
};

struct Pinned {
  std::mutex mutex;
  std::map<const char*, PinnedBlock> blocks;  // by address, in use and free
  std::multimap<size_t, const char*> free;    // by size
  Figures figures;
};

Pinned& pinned() {
  static auto* instance = new Pinned();  // leaked: tensors die after static destructors have run
  return *instance;
}

bool finished(PinnedBlock& block) {
  for (cl_event marker : block.pending) {
    if (!is_complete(marker)) return false;
  }
  return true;
}

void forget_markers(PinnedBlock& block) {
  for (cl_event marker : block.pending) cl.clReleaseEvent(marker);
  block.pending.clear();
}

void* take_free(Pinned& all, size_t size) {
  for (auto it = all.free.lower_bound(size); it != all.free.end() && it->first <= 2 * size; ++it) {
    const char* address = it->second;
    PinnedBlock& block = all.blocks.at(address);
    if (!finished(block)) continue;
    forget_markers(block);
    all.free.erase(it);
    return const_cast<char*>(address);
  }
  return nullptr;
}

void* create(Pinned& all, size_t size) {
  Device& device = device_at(current_device());
  cl_int status = CL_SUCCESS;
  cl_mem buffer = cl.clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size,
                                    nullptr, &status);
  void* address = nullptr;
  if (status == CL_SUCCESS) {
    address = cl.clEnqueueMapBuffer(device.queue, buffer, CL_TRUE, CL_MAP_READ_WRITE, 0, size, 0,
                                    nullptr, nullptr, &status);
    if (status != CL_SUCCESS) cl.clReleaseMemObject(buffer);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, status == CL_SUCCESS, device.name, ": pinning ", size,
                   " B of host memory failed with ", error_name(status),
                   ". Use pin_memory=False, or smaller batches.");
  all.blocks[static_cast<const char*>(address)] = {buffer, current_device(), size, {}};
  all.figures.allocations.increase(1);
  all.figures.allocated_bytes.increase(size);
  return address;
}

void give_back(void* address) {
  if (!address || in_forked_child()) return;
  Pinned& all = pinned();
  const std::lock_guard<std::mutex> lock(all.mutex);
  PinnedBlock& block = all.blocks.at(static_cast<const char*>(address));
  for (int index = 0; index < device_count(); ++index) {
    cl_event marker = nullptr;
    const cl_command_queue queue = device_at(c10::DeviceIndex(index)).queue;
    if (cl.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker) == CL_SUCCESS) {
      cl.clFlush(queue);
      block.pending.push_back(marker);
    }
  }
  all.free.emplace(block.size, static_cast<const char*>(address));
  all.figures.active_requests.decrease(1);
  all.figures.active_bytes.decrease(block.size);
}

// Torch reaches the cache through this: torch.accelerator.empty_host_cache.
struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &give_back, cpu};
    check_not_forked();
    TORCH_CHECK(device_count() > 0, "there is no OpenCL device to pin memory for");
    const size_t size = (bytes + kPage - 1) / kPage * kPage;
    Pinned& all = pinned();
    const std::lock_guard<std::mutex> lock(all.mutex);
    void* address = take_free(all, size);
    if (!address) address = create(all, size);
    all.figures.active_requests.increase(1);
    all.figures.active_bytes.increase(all.blocks.at(static_cast<const char*>(address)).size);
    return {address, address, &give_back, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  // A freed block waits for every queue: no stream has to be named.
  bool record_event(void* address, void*, c10::Stream) override { return is_pinned(address); }
  void empty_cache() override { empty_pinned_cache(); }
  at::HostStats get_stats() override { no_figures(); }
  void reset_accumulated_stats() override { no_figures(); }
  void reset_peak_stats() override { no_figures(); }

 private:
  [[noreturn]] static void no_figures() {
    C10_THROW_ERROR(NotImplementedError,
                    "torch's own figures of pinned memory differ from version to version; "
                    "torch.ocl.host_memory_stats() has those of ocl devices.");
  }
};

}  // namespace

c10::Allocator* pinned_allocator() {
  static auto* instance = [] {
    auto* made = new PinnedAllocator();
    at::setHostAllocator(c10::DeviceType::PrivateUse1, made);
    return made;
  }();
  return instance;
}

bool is_pinned(const void* address) {
  Pinned& all = pinned();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto found = all.blocks.upper_bound(static_cast<const char*>(address));
  if (found == all.blocks.begin()) return false;
  --found;
  return static_cast<const char*>(address) < found->first + found->second.size;
}

void empty_pinned_cache() {
  for (int index = 0; index < device_count(); ++index) finish(c10::DeviceIndex(index));
  Pinned& all = pinned();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [size, address] : all.free) {
    PinnedBlock& block = all.blocks.at(address);
    forget_markers(block);
    cl.clEnqueueUnmapMemObject(device_at(block.device).queue, block.buffer,
                               const_cast<char*>(address), 0, nullptr, nullptr);
    cl.clReleaseMemObject(block.buffer);
    all.figures.allocations.decrease(1);
    all.figures.allocated_bytes.decrease(size);
    all.blocks.erase(address);
  }
  all.free.clear();
}

}  // namespace ocl

extern "C" {

// Writes present, highest, added and taken of each of `Figures`.
void ocl_pinned_figures(int64_t* words) {
  ocl::Pinned& all = ocl::pinned();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto* stat : all.figures.all())
    for (const int64_t value : {stat->current, stat->peak, stat->allocated, stat->freed})
      *words++ = value;
}

// Starts the highest ones again from the present ones, or else what was added and taken from zero.
void ocl_reset_pinned_figures(int highest) {
  ocl::Pinned& all = ocl::pinned();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (auto* stat : all.figures.all()) highest ? stat->reset_peak() : stat->reset_accumulated();
}
}

#include "runtime/buffers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ocl {

namespace {

// Smaller buffers cost the host more than their translations cost kernels.
constexpr size_t kLeastOfPages = size_t(64) << 10;
constexpr size_t kPlaces = 4096;  // a buffer begins at a multiple of it
constexpr size_t kLargePage = size_t(2) << 20;
// What is mapped at once: pages that no buffer has are never touched.
constexpr size_t kMapped = size_t(32) << 20;
// Bytes on each side of what is mapped that may be read: Mesa's compiler for llvmpipe loads also
// for lanes that a condition leaves out, such as the item before a buffer's first.
constexpr size_t kBeside = 4096;

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Bytes of ranges, by their first byte. A range that is free touches no free one of its mapping.
using Ranges = std::map<char*, size_t>;

struct Pages {
  std::mutex mutex;
  Ranges mapped, taken, unused;
};

// Leaked on purpose: tensors die after static destructors have run.
Pages& pages() {
  static auto* all = new Pages();
  return *all;
}

#ifdef __linux__
// Maps large pages at a multiple of their size; null if the system refuses.
char* map_pages(size_t bytes) {
  const size_t all = bytes + kLargePage + 2 * kBeside;
  void* found = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;  // NOLINT(performance-no-int-to-ptr): the system's
  auto* first = static_cast<char*>(found);
  const auto place = reinterpret_cast<uintptr_t>(first);
  char* begin = first + (rounded_up(place + kBeside, kLargePage) - place);
  char* end = begin + bytes + kBeside;
  if (begin - kBeside > first) munmap(first, size_t(begin - kBeside - first));
  if (first + all > end) munmap(end, size_t(first + all - end));
  madvise(begin, bytes, MADV_HUGEPAGE);  // a kernel without them has small ones
  return begin;
}

void unmap_pages(char* begin, size_t bytes) { munmap(begin - kBeside, bytes + 2 * kBeside); }
#else
char* map_pages(size_t) { return nullptr; }
void unmap_pages(char*, size_t) {}
#endif

// The unused range that has room for `bytes`, or the end.
Ranges::iterator room_for(size_t bytes) {
  Ranges& unused = pages().unused;
  return std::find_if(unused.begin(), unused.end(),
                      [&](const auto& range) { return range.second >= bytes; });
}

// The mapping that holds a place.
Ranges::iterator mapping_of(char* place) { return std::prev(pages().mapped.upper_bound(place)); }

}  // namespace

void* take_pages(size_t bytes) {
  bytes = rounded_up(bytes, kPlaces);
  Pages& all = pages();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto range = room_for(bytes);
  if (range == all.unused.end()) {
    const size_t size = std::max(kMapped, rounded_up(bytes, kLargePage));
    char* begin = map_pages(size);
    if (!begin) return nullptr;
    all.mapped.emplace(begin, size);
    range = all.unused.emplace(begin, size).first;
  }
  const auto [begin, size] = *range;
  all.unused.erase(range);
  if (size > bytes) all.unused.emplace(begin + bytes, size - bytes);
  all.taken.emplace(begin, bytes);
  return begin;
}

void give_pages_back(void* given) {
  Pages& all = pages();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto taken = all.taken.find(static_cast<char*>(given));
  char* begin = taken->first;
  size_t size = taken->second;
  all.taken.erase(taken);
  const auto mapping = mapping_of(begin);
  const auto after = all.unused.find(begin + size);
  if (after != all.unused.end() && mapping_of(after->first) == mapping) {
    size += after->second;
    all.unused.erase(after);
  }
  const auto next = all.unused.lower_bound(begin);
  if (next != all.unused.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin && mapping_of(before->first) == mapping) {
      begin = before->first;
      size += before->second;
      all.unused.erase(before);
    }
  }
  if (size == mapping->second) {
    unmap_pages(begin, size);
    all.mapped.erase(mapping);
  } else {
    all.unused.emplace(begin, size);
  }
}

size_t mapped_pages() {
  Pages& all = pages();
  const std::lock_guard<std::mutex> lock(all.mutex);
  size_t bytes = 0;
  for (const auto& [begin, size] : all.mapped) bytes += size;
  return bytes;
}

cl_int create_buffer(Device& device, size_t size, Buffer* made) {
  const bool is_there = device.is_processor && size >= kLeastOfPages;
  Buffer buffer;
  if (is_there) buffer.pages = take_pages(size);
  const cl_mem_flags flags = CL_MEM_READ_WRITE | (buffer.pages ? CL_MEM_USE_HOST_PTR : 0);
  cl_int status = CL_SUCCESS;
  buffer.handle = cl.clCreateBuffer(device.context, flags, size, buffer.pages, &status);
  if (status != CL_SUCCESS) {
    if (buffer.pages) give_pages_back(buffer.pages);
    return status;
  }
  const cl_uint zero = 0;
  status = cl.clEnqueueFillBuffer(device.queue, buffer.handle, &zero, sizeof zero, 0, sizeof zero,
                                  0, nullptr, nullptr);
  if (status != CL_SUCCESS) {
    release_buffer(buffer);
  } else {
    *made = buffer;
  }
  return status;
}

void release_buffer(const Buffer& buffer) {
  cl.clReleaseMemObject(buffer.handle);
  if (buffer.pages) give_pages_back(buffer.pages);
}

}  // namespace ocl

extern "C" {

// Tells whether a device is a processor: its buffers lie in the host's large pages.
void ocl_set_processor(int device, int is_processor) {
  ocl::device_at(c10::DeviceIndex(device)).is_processor = is_processor != 0;
}

// Bytes of the host's memory that are mapped for buffers in large pages.
size_t ocl_mapped_pages() { return ocl::mapped_pages(); }
}

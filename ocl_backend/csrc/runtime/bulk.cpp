#include "runtime/bulk.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/pinned.h"
#include "runtime/profile.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

constexpr size_t kChunkBytes = size_t(2) << 20;
constexpr size_t kMostThreads = 8;

struct Job {
  Location place;
  char* host;
  size_t bytes;
  bool to_device;
  std::vector<c10::DataPtr> buffers;  // pinned, one for each thread that takes part
  std::atomic<size_t> joined{0};
  std::atomic<size_t> next{0};
  std::atomic<cl_int> status{CL_SUCCESS};
  std::mutex mutex;
  std::condition_variable all_done;
  size_t done = 0;  // chunks, guarded by `mutex`

  size_t chunks() const { return (bytes + kChunkBytes - 1) / kChunkBytes; }
};

cl_int write_chunk(Job& job, char* pinned, size_t at, size_t size, cl_event& busy) {
  if (busy) {
    cl.clWaitForEvents(1, &busy);
    cl.clReleaseEvent(std::exchange(busy, nullptr));
  }
  std::memcpy(pinned, job.host + at, size);
  const c10::DeviceIndex index = job.place.block->device;
  const cl_command_queue queue = device_at(index).queue;
  Timed timed(index, Activity::kCopy, "copy host to device", size);
  const cl_int status =
      cl.clEnqueueWriteBuffer(queue, job.place.block->buffer, CL_FALSE, job.place.offset + at, size,
                              pinned, 0, nullptr, &busy);
  if (status == CL_SUCCESS) timed.share(busy);
  cl.clFlush(queue);
  return status;
}

cl_int read_chunk(Job& job, char* pinned, size_t at, size_t size) {
  const c10::DeviceIndex index = job.place.block->device;
  Timed timed(index, Activity::kCopy, "copy device to host", size);
  const cl_int status =
      cl.clEnqueueReadBuffer(device_at(index).queue, job.place.block->buffer, CL_TRUE,
                             job.place.offset + at, size, pinned, 0, nullptr, timed.event());
  if (status == CL_SUCCESS) std::memcpy(job.host + at, pinned, size);
  return status;
}

// Takes chunks until there are none. A thread that comes late finds none and touches nothing.
void take_part(Job& job) {
  const size_t mine = job.joined++;
  if (mine >= job.buffers.size()) return;
  char* pinned = static_cast<char*>(job.buffers[mine].get());
  cl_event busy = nullptr;
  for (size_t chunk; (chunk = job.next++) < job.chunks();) {
    const size_t at = chunk * kChunkBytes;
    const size_t size = std::min(kChunkBytes, job.bytes - at);
    const cl_int status = job.to_device ? write_chunk(job, pinned, at, size, busy)
                                        : read_chunk(job, pinned, at, size);
    if (status != CL_SUCCESS) job.status = status;
    const std::lock_guard<std::mutex> lock(job.mutex);
    if (++job.done == job.chunks()) job.all_done.notify_one();
  }
  if (busy) cl.clReleaseEvent(busy);  // the buffer's marker waits for the write
}

// The calling thread takes part, so the copy ends even where torch's threads are all occupied.
void run(const Location& place, char* host, size_t bytes, bool to_device, const char* operation) {
  const auto job = std::make_shared<Job>();
  job->place = place;
  job->host = host;
  job->bytes = bytes;
  job->to_device = to_device;
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 1,
                                            std::min(kMostThreads, job->chunks()));
  for (size_t i = 0; i < threads; ++i) {
    job->buffers.push_back(pinned_allocator()->allocate(kChunkBytes));
  }
  for (size_t i = 1; i < threads; ++i) at::launch([job] { take_part(*job); });
  take_part(*job);
  std::unique_lock<std::mutex> lock(job->mutex);
  job->all_done.wait(lock, [&] { return job->done == job->chunks(); });
  check(job->status, device_at(place.block->device), operation);
}

}  // namespace

void write_bulk(const Location& target, const void* source, size_t bytes) {
  run(target, static_cast<char*>(const_cast<void*>(source)), bytes, true, "host to device copy");
}

void read_bulk(void* target, const Location& source, size_t bytes) {
  run(source, static_cast<char*>(target), bytes, false, "device to host copy");
}

}  // namespace ocl

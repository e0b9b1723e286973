// Host-device and device-device transfers on each device's in-order queue.
#include "runtime/transfer.h"

#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <vector>

#include "runtime/bulk.h"
#include "runtime/deferred.h"
#include "runtime/faults.h"
#include "runtime/observer.h"
#include "runtime/pinned.h"
#include "runtime/profile.h"

namespace ocl {

namespace {

// Up to this size a write is staged: the caller goes on while the device is still busy.
constexpr size_t kStagedBytes = size_t(256) << 10;
constexpr size_t kStagedAtOnce = 64;
constexpr const char* kHostToDevice = "copy host to device";

void begin_command() {
  observer().unrepeatable();
  observer().before_command();
}

struct Staged {
  std::unique_ptr<char[]> bytes;
  cl_event done;
};

struct Staging {
  std::mutex mutex;
  std::deque<Staged> pending;  // in the order of the queue, so the front completes first
};

Staging& staging_of(c10::DeviceIndex index) {
  static auto* all = new std::array<Staging, kMostDevices>();
  return all->at(size_t(index));
}

bool complete(cl_event event) {
  cl_int state = CL_COMPLETE;
  cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  return state <= CL_COMPLETE;  // negative: it failed, which the next `finish` reports
}

void reap(Staging& staging) {
  auto& pending = staging.pending;
  if (pending.size() >= kStagedAtOnce) cl.clWaitForEvents(1, &pending.front().done);
  while (!pending.empty() && complete(pending.front().done)) {
    cl.clReleaseEvent(pending.front().done);
    pending.pop_front();
  }
}

void write_staged(const Location& to, std::unique_ptr<char[]> source, size_t bytes) {
  Device& device = device_at(to.block->device);
  Staging& staging = staging_of(to.block->device);
  const std::lock_guard<std::mutex> lock(staging.mutex);
  reap(staging);
  Staged staged{std::move(source), nullptr};
  ++to.block->writes;
  Timed timed(to.block->device, Activity::kCopy, kHostToDevice, bytes);
  check(cl.clEnqueueWriteBuffer(device.queue, to.block->buffer, CL_FALSE, to.offset, bytes,
                                staged.bytes.get(), 0, nullptr, &staged.done),
        device, "host to device copy");
  timed.share(staged.done);
  cl.clFlush(device.queue);
  staging.pending.push_back(std::move(staged));
}

void copy_within(const Location& to, const Location& from, size_t bytes) {
  Device& device = device_at(to.block->device);
  ++to.block->writes;
  Timed timed(to.block->device, Activity::kCopy, "copy within device", bytes);
  check(cl.clEnqueueCopyBuffer(device.queue, from.block->buffer, to.block->buffer, from.offset,
                               to.offset, bytes, 0, nullptr, timed.event()),
        device, "device copy");
}

Location at(int64_t address) { return locate(reinterpret_cast<const void*>(address)); }

// A staged write that waits behind launches; its word is where to.
struct Write final : Prepared {
  int enqueue(const int64_t* words) override try {
    write_staged(at(words[0]), std::move(source), bytes);
    return kOk;
  } catch (...) {
    return fail_with_exception();
  }

  std::unique_ptr<char[]> source;
  size_t bytes;
};

// A copy within a device that waits behind launches; its words are where to, and from.
struct Copy final : Prepared {
  int enqueue(const int64_t* words) override try {
    copy_within(at(words[0]), at(words[1]), bytes);
    return kOk;
  } catch (...) {
    return fail_with_exception();
  }

  size_t bytes;
};

void defer_transfer(c10::DeviceIndex device, Prepared& transfer, const void* first,
                    const void* second = nullptr) {
  const int64_t words[] = {reinterpret_cast<int64_t>(first), reinterpret_cast<int64_t>(second)};
  if (const int status = defer(device, transfer, words, std::size(words))) raise(status);
}

// Copies what is written first, so that the caller goes on.
void write_small(const Location& to, void* target, const void* source, size_t bytes) {
  auto staged = std::make_unique<char[]>(bytes);
  std::memcpy(staged.get(), source, bytes);
  if (!has_deferred(to.block->device)) return write_staged(to, std::move(staged), bytes);
  const auto later = std::make_shared<Write>();
  later->source = std::move(staged);
  later->bytes = bytes;
  defer_transfer(to.block->device, *later, target);
}

bool is_bulk(const Device& device, const void* host, size_t bytes) {
  return device.own_memory && bytes >= kBulkBytes && !is_pinned(host);
}

}  // namespace

void check(cl_int status, const Device& device, const char* operation) {
  if (status == CL_SUCCESS) return;
  const char* last = device.last_kernel.load();
  throw c10::AcceleratorError(
      {__func__, __FILE__, uint32_t(__LINE__)}, status,
      c10::str(device.name, ": ", operation, " failed with ", error_name(status),
               ". Commands run "
               "asynchronously: an earlier one may have failed; the last kernel launched was ",
               last ? last : "none", "."));
}

void read(void* target, const void* source, size_t bytes) {
  begin_command();
  const Location from = locate_or_throw(source, "device to host copy");
  wait_for_programs(from.block->device);
  Device& device = device_at(from.block->device);
  if (is_bulk(device, target, bytes)) {
    read_bulk(target, from, bytes);
  } else {
    Timed timed(from.block->device, Activity::kCopy, "copy device to host", bytes);
    check(cl.clEnqueueReadBuffer(device.queue, from.block->buffer, CL_TRUE, from.offset, bytes,
                                 target, 0, nullptr, timed.event()),
          device, "device to host copy");
  }
  raise_fault(device);
}

void write(void* target, const void* source, size_t bytes, bool source_stays) {
  begin_command();
  const Location to = locate_or_throw(target, "host to device copy");
  Device& device = device_at(to.block->device);
  if (bytes <= kStagedBytes && !source_stays) return write_small(to, target, source, bytes);
  wait_for_programs(to.block->device);
  ++to.block->writes;
  if (is_bulk(device, source, bytes)) return write_bulk(to, source, bytes);
  Timed timed(to.block->device, Activity::kCopy, kHostToDevice, bytes);
  check(cl.clEnqueueWriteBuffer(device.queue, to.block->buffer, source_stays ? CL_FALSE : CL_TRUE,
                                to.offset, bytes, source, 0, nullptr, timed.event()),
        device, "host to device copy");
}

void write_new(void* target, const void* source, size_t bytes) {
  write_small(locate_or_throw(target, "host to device copy"), target, source, bytes);
}

void copy(void* target, const void* source, size_t bytes) {
  begin_command();
  const Location to = locate_or_throw(target, "device copy target");
  const Location from = locate_or_throw(source, "device copy source");
  if (to.block->device != from.block->device) {
    std::vector<char> host(bytes);
    read(host.data(), source, bytes);
    return write(target, host.data(), bytes, false);
  }
  if (!has_deferred(to.block->device)) return copy_within(to, from, bytes);
  const auto later = std::make_shared<Copy>();
  later->bytes = bytes;
  defer_transfer(to.block->device, *later, target, source);
}

void finish(c10::DeviceIndex index) {
  check_not_forked();
  begin_command();
  wait_for_programs(index);
  Device& device = device_at(index);
  check(cl.clFinish(device.queue), device, "synchronize");
}

}  // namespace ocl

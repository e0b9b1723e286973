// Host-device and device-device transfers on each device's in-order queue.
#include "runtime/transfer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "runtime/bulk.h"
#include "runtime/deferred.h"
#include "runtime/faults.h"
#include "runtime/observer.h"
#include "runtime/pinned.h"
#include "runtime/profile.h"
#include "runtime/submitter.h"

namespace ocl {

namespace {

// Up to this size a write is staged: the caller goes on while the device is still busy.
constexpr size_t kStagedBytes = size_t(256) << 10;
constexpr size_t kStagedAtOnce = 64;
// While launches wait for programs, larger writes are staged, too: the caller goes on and asks for
// the next programs. This bounds the bytes of the host's memory that all copies take.
constexpr size_t kHeldBytes = size_t(256) << 20;
constexpr const char* kHostToDevice = "copy host to device";
constexpr const char* kWithinDevice = "copy within device";

void begin_command() {
  observer().unrepeatable();
  observer().before_command();
}

struct Staged {
  std::shared_ptr<char[]> bytes;
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

void reap(Staging& staging) {
  auto& pending = staging.pending;
  if (pending.size() >= kStagedAtOnce) cl.clWaitForEvents(1, &pending.front().done);
  while (!pending.empty() && is_complete(pending.front().done)) {
    cl.clReleaseEvent(pending.front().done);
    pending.pop_front();
  }
}

Location at(int64_t address) { return locate(reinterpret_cast<const void*>(address)); }

// A transfer whose words are addresses. It waits behind launches that wait for their programs.
struct Transfer : Prepared {
  Transfer(c10::DeviceIndex on, size_t size, size_t addresses) : bytes(size), device(on) {
    is_address.assign(addresses, true);
  }
  int enqueue(const int64_t* words) final {
    return has_deferred(device) ? defer(device, *this, words, is_address.size()) : run(words);
  }

  const size_t bytes;
  const c10::DeviceIndex device;
};

// A staged write; its word is where to.
struct Write final : Transfer {
  Write(c10::DeviceIndex on, size_t size, std::shared_ptr<char[]> from)
      : Transfer(on, size, 1), source(std::move(from)) {}
  int run(const int64_t* words) override {
    const Location to = at(words[0]);
    Resolved resolved;
    resolved.add(to, int64_t(to.offset), true);
    return hand_over(device, *this, resolved, true);
  }
  int submit(const int64_t* resolved) override;
  const char* label() const override { return kHostToDevice; }

  const std::shared_ptr<char[]> source;  // a graph writes it again and again
};

int Write::submit(const int64_t* resolved) try {
  Device& one = device_at(device);
  Staging& staging = staging_of(device);
  const std::lock_guard<std::mutex> lock(staging.mutex);
  reap(staging);
  cl_event done = nullptr;
  Timed timed(device, Activity::kCopy, kHostToDevice, bytes);
  ocl::check(cl.clEnqueueWriteBuffer(one.queue, buffer_of(resolved[0]), CL_FALSE,
                                     size_t(resolved[1]), bytes, source.get(), 0, nullptr, &done),
             one, "host to device copy");
  timed.share(done);
  cl.clFlush(one.queue);
  staging.pending.push_back({source, done});
  return kOk;
} catch (...) {
  return fail_with_exception();
}

// A copy within a device; its words are where to, and from.
struct Copy final : Transfer {
  Copy(c10::DeviceIndex on, size_t size) : Transfer(on, size, 2) {}
  int run(const int64_t* words) override {
    const Location to = at(words[0]), from = at(words[1]);
    Resolved resolved;
    resolved.add(to, int64_t(to.offset), true);
    resolved.add(from, int64_t(from.offset), false);
    return hand_over(device, *this, resolved, true);
  }
  int submit(const int64_t* resolved) override;
  const char* label() const override { return kWithinDevice; }
};

int Copy::submit(const int64_t* resolved) try {
  Device& one = device_at(device);
  Timed timed(device, Activity::kCopy, kWithinDevice, bytes);
  ocl::check(cl.clEnqueueCopyBuffer(one.queue, buffer_of(resolved[2]), buffer_of(resolved[0]),
                                    size_t(resolved[3]), size_t(resolved[1]), bytes, 0, nullptr,
                                    timed.event()),
             one, "device copy");
  return kOk;
} catch (...) {
  return fail_with_exception();
}

// The copy of `bytes` bytes, the same one as long as a recipe knows it.
Handle copy_of(c10::DeviceIndex device, size_t bytes) {
  constexpr size_t kMostCopies = 1024;
  static std::mutex mutex;
  static auto* known = new std::map<std::pair<c10::DeviceIndex, size_t>, Handle>();
  const std::lock_guard<std::mutex> lock(mutex);
  if (known->size() > kMostCopies) known->clear();
  Handle& found = (*known)[{device, bytes}];
  if (!found) found = std::make_shared<Copy>(device, bytes);
  return found;
}

std::atomic<size_t> held_bytes{0};  // of copies whose writes are not known to be complete

// Whether a write is staged behind launches that wait for programs.
bool is_held(c10::DeviceIndex device, size_t bytes) {
  return has_deferred(device) && bytes <= kHeldBytes - std::min(held_bytes.load(), kHeldBytes);
}

// Copies what is written first, so that the caller goes on.
void write_staged(const Location& to, void* target, const void* source, size_t bytes) {
  held_bytes += bytes;
  const std::shared_ptr<char[]> copied(new char[bytes], [bytes](const char* held) {
    held_bytes -= bytes;
    delete[] held;
  });
  std::memcpy(copied.get(), source, bytes);
  const auto staged = std::make_shared<Write>(to.block->device, bytes, copied);
  const int64_t words[] = {reinterpret_cast<int64_t>(target)};
  if (const int status = staged->enqueue(words)) raise(status);
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
  const cl_command_queue queue = queue_of(from.block->device);
  if (is_bulk(device, target, bytes)) {
    read_bulk(target, from, bytes);
  } else {
    Timed timed(from.block->device, Activity::kCopy, "copy device to host", bytes);
    check(cl.clEnqueueReadBuffer(queue, from.block->buffer, CL_TRUE, from.offset, bytes, target, 0,
                                 nullptr, timed.event()),
          device, "device to host copy");
  }
  raise_fault(device);
}

void write(void* target, const void* source, size_t bytes, bool source_stays) {
  begin_command();
  const Location to = locate_or_throw(target, "host to device copy");
  Device& device = device_at(to.block->device);
  const bool is_small = bytes <= kStagedBytes && !source_stays;
  if (is_small || is_held(to.block->device, bytes)) return write_staged(to, target, source, bytes);
  wait_for_programs(to.block->device);
  ++to.block->writes;
  const cl_command_queue queue = queue_of(to.block->device);
  if (is_bulk(device, source, bytes)) return write_bulk(to, source, bytes);
  Timed timed(to.block->device, Activity::kCopy, kHostToDevice, bytes);
  check(cl.clEnqueueWriteBuffer(queue, to.block->buffer, source_stays ? CL_FALSE : CL_TRUE,
                                to.offset, bytes, source, 0, nullptr, timed.event()),
        device, "host to device copy");
}

void write_new(void* target, const void* source, size_t bytes) {
  write_staged(locate_or_throw(target, "host to device copy"), target, source, bytes);
}

void copy(void* target, const void* source, size_t bytes) {
  const Location to = locate_or_throw(target, "device copy target");
  const Location from = locate_or_throw(source, "device copy source");
  if (to.block->device != from.block->device) {
    begin_command();
    std::vector<char> host(bytes);
    read(host.data(), source, bytes);
    return write(target, host.data(), bytes, false);
  }
  const Handle within = copy_of(to.block->device, bytes);
  const int64_t words[] = {reinterpret_cast<int64_t>(target), reinterpret_cast<int64_t>(source)};
  observer().before_repeatable(within, words);
  if (const int status = within->enqueue(words)) raise(status);
}

void finish(c10::DeviceIndex index) {
  check_not_forked();
  begin_command();
  wait_for_programs(index);
  Device& device = device_at(index);
  check(cl.clFinish(queue_of(index)), device, "synchronize");
}

}  // namespace ocl

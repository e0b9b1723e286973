// When commands ran on their device, recorded while there is a listener: torch's profiler or
// `torch.ocl.profile`. Knows OpenCL's events and clocks, not the listeners.
#pragma once

#include <vector>

#include "runtime/memory.h"

namespace ocl {

enum class Activity : int32_t { kKernel = 0, kCopy = 1 };

// Nanoseconds of the host's clock since 1970; `asked` and `accepted` surround the enqueueing.
struct Timing {
  const char* name;  // outlives the record
  Activity activity;
  c10::DeviceIndex device;
  int32_t thread;
  size_t bytes;          // moved; 0 for kernels
  uint64_t correlation;  // torch's operator that enqueued it; 0: none
  int64_t asked, accepted, start, end;
};

// Surrounds one enqueueing: hand `event()` to OpenCL. Null, and free, without a listener.
class Timed {
 public:
  Timed(c10::DeviceIndex device, Activity activity, const char* name, size_t bytes = 0);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  cl_event* event() { return listening_ ? &event_ : nullptr; }
  // For a command whose event its caller owns.
  void share(cl_event event);

 private:
  bool listening_;
  cl_event event_ = nullptr;
  Timing timing_;
};

// Begins to listen; the number returned says from where on the records are this listener's.
size_t listen();
// Waits for what was recorded and returns it, oldest first.
std::vector<Timing> stop_listening(size_t since);

// The operator this thread is in, for `Timing::correlation`.
uint64_t current_correlation();
void push_correlation(uint64_t id);
void pop_correlation();

// Whether there is a listener.
bool is_listened_to();

int64_t host_now();

}  // namespace ocl

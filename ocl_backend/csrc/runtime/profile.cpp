// The recorder of device times, and its listener for Python. It knows no profiler of torch.
#include "runtime/profile.h"

#include <chrono>
#include <deque>
#include <sstream>

#include "runtime/launch.h"
#include "runtime/observer.h"
#include "runtime/system.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

std::atomic<int> listeners{0};

constexpr size_t kPendingAtMost = 1024;
constexpr int kCalibrations = 5;

struct Pending {
  Timing timing;
  cl_event event;
};

struct Recorder {
  std::mutex mutex;
  std::deque<Pending> pending;
  std::vector<Timing> done;
  std::vector<int64_t> clock_offsets;  // host's clock minus the device's, per device
};

thread_local std::vector<uint64_t> correlations;

Recorder& recorder() {
  static auto* instance = new Recorder();  // leaked: a device may be used while statics die
  return *instance;
}

int64_t device_time(cl_event event, cl_uint which) {
  uint64_t time = 0;
  cl.clGetEventProfilingInfo(event, which, sizeof time, &time, nullptr);
  return int64_t(time);
}

// The device's clock starts anywhere. A marker on an idle queue ends between two readings of the
// host's clock; the closest pair of some tries tells the offset to within their distance.
int64_t clock_offset(c10::DeviceIndex index) {
  finish(index);
  Device& device = device_at(index);
  int64_t best = INT64_MAX, offset = 0;
  for (int attempt = 0; attempt < kCalibrations; ++attempt) {
    cl_event marker = nullptr;
    const int64_t before = host_now();
    check(cl.clEnqueueMarkerWithWaitList(device.queue, 0, nullptr, &marker), device, "clock");
    cl.clWaitForEvents(1, &marker);
    const int64_t after = host_now();
    if (after - before < best) {
      best = after - before;
      offset = before + best / 2 - device_time(marker, CL_PROFILING_COMMAND_END);
    }
    cl.clReleaseEvent(marker);
  }
  return offset;
}

void settle(Recorder& all, Pending& pending) {
  Timing& timing = pending.timing;
  const int64_t offset = all.clock_offsets[size_t(timing.device)];
  cl.clWaitForEvents(1, &pending.event);
  timing.start = device_time(pending.event, CL_PROFILING_COMMAND_START) + offset;
  timing.end = device_time(pending.event, CL_PROFILING_COMMAND_END) + offset;
  cl.clReleaseEvent(pending.event);
  all.done.push_back(timing);
}

void settle_complete(Recorder& all) {
  while (!all.pending.empty() && is_complete(all.pending.front().event)) {
    settle(all, all.pending.front());
    all.pending.pop_front();
  }
}

}  // namespace

int64_t host_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

Timed::Timed(c10::DeviceIndex device, Activity activity, const char* name, size_t bytes)
    : listening_(is_listened_to()) {
  if (!listening_) return;
  timing_ = {name, activity, device, thread_id(), bytes, current_correlation(), host_now(),
             0,    0,        0};
}

Timed::~Timed() {
  if (!event_) return;
  timing_.accepted = host_now();
  Recorder& all = recorder();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.pending.push_back({timing_, event_});
  if (all.pending.size() >= kPendingAtMost) settle_complete(all);
}

void Timed::share(cl_event event) {
  if (listening_ && event && cl.clRetainEvent(event) == CL_SUCCESS) event_ = event;
}

size_t listen() {
  observer().before_command();
  std::vector<int64_t> offsets;
  // without the recorder's mutex: `finish` may wait for a thread that runs held launches, and that
  // thread takes the mutex to record them
  if (!is_listened_to())
    for (int index = 0; index < device_count(); ++index)
      offsets.push_back(clock_offset(c10::DeviceIndex(index)));
  Recorder& all = recorder();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!offsets.empty() && listeners.load() == 0) all.clock_offsets = std::move(offsets);
  ++listeners;
  return all.done.size() + all.pending.size();
}

std::vector<Timing> stop_listening(size_t since) {
  observer().before_command();
  for (int index = 0; index < device_count(); ++index) finish(c10::DeviceIndex(index));
  Recorder& all = recorder();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (Pending& pending : all.pending) settle(all, pending);
  all.pending.clear();
  std::vector<Timing> heard(all.done.begin() + std::ptrdiff_t(std::min(since, all.done.size())),
                            all.done.end());
  if (--listeners == 0) all.done.clear();
  return heard;
}

bool is_listened_to() { return listeners.load(std::memory_order_relaxed) > 0; }

uint64_t current_correlation() { return correlations.empty() ? 0 : correlations.back(); }
void push_correlation(uint64_t id) { correlations.push_back(id); }
void pop_correlation() {
  if (!correlations.empty()) correlations.pop_back();
}

}  // namespace ocl

extern "C" {

// Returns what `ocl_profile_stop` takes, or a negative status.
int64_t ocl_profile_start() try { return int64_t(ocl::listen()); } catch (...) {
  return -ocl::fail_with_exception();
}

// Lines of "device start end bytes name", valid until the thread's next call; null for a failure.
const char* ocl_profile_stop(int64_t since) try {
  thread_local std::string text;
  std::ostringstream lines;
  for (const ocl::Timing& timing : ocl::stop_listening(size_t(since)))
    lines << int(timing.device) << ' ' << timing.start << ' ' << timing.end << ' ' << timing.bytes
          << ' ' << timing.name << '\n';
  text = lines.str();
  return text.c_str();
} catch (...) {
  ocl::fail_with_exception();
  return nullptr;
}
}

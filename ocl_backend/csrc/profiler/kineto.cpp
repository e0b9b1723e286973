// What torch's profilers ask of a device: a source of activities for torch.profiler (Kineto), and
// the stubs by which torch.autograd.profiler times operators. Recording is `profile.cpp`'s.
#include <torch/csrc/profiler/stubs/base.h>

#include "profiler/kineto.h"
#include "runtime/deferred.h"
#include "runtime/observer.h"
#include "runtime/profile.h"
#include "runtime/submitter.h"
#include "runtime/transfer.h"

// torch's libraries for Windows do not export Kineto's functions
#if __has_include(<kineto/libkineto.h>) && !defined(_WIN32)
#include <kineto/libkineto.h>
#define OCL_HAS_KINETO 1
#endif

namespace ocl {

namespace {

#ifdef OCL_HAS_KINETO

using libkineto::ActivityType;
using libkineto::CpuTraceBuffer;
using libkineto::GenericTraceActivity;

// Every type a device takes part in when torch asks for "PrivateUse1".
const std::set<ActivityType>& activity_types() {
  static const auto* types = new std::set<ActivityType>{
      ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::PRIVATEUSE1_RUNTIME};
  return *types;
}

ActivityType type_of(Activity activity) {
  return activity == Activity::kCopy ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
}

// One recording. Each command becomes two activities, the enqueueing on its thread and the
// execution on its device, joined by an arrow and linked to the operator that asked for them.
class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    if (device_count() == 0 || in_forked_child()) return;
    since_ = listen();
    listening_ = true;
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    if (!listening_) return;
    listening_ = false;
    timings_ = stop_listening(since_);
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t, int64_t) override {
    for (const Timing& timing : timings_) {
      const auto* op = timing.correlation ? linked(int32_t(timing.correlation)) : nullptr;
      ++flow_;
      enqueueing(timing, op).log(logger);
      execution(timing, op).log(logger);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> queues;
    queues.reserve(size_t(device_count()));
    for (int index = 0; index < device_count(); ++index)
      queues.push_back({0, index, index, "queue of " + device_at(c10::DeviceIndex(index)).name});
    return queues;
  }
  std::unique_ptr<CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }
  void pushCorrelationId(uint64_t id) override { push_correlation(id); }
  void popCorrelationId() override { pop_correlation(); }

 private:
  GenericTraceActivity& enqueueing(const Timing& timing, const libkineto::ITraceActivity* op) {
    auto& activity = add(ActivityType::PRIVATEUSE1_RUNTIME, "enqueue", op);
    activity.startTime = timing.asked;
    activity.endTime = timing.accepted;
    activity.device = libkineto::processId();
    activity.resource = timing.thread;
    activity.threadId = timing.thread;
    activity.flow.start = 1;
    return activity;
  }
  GenericTraceActivity& execution(const Timing& timing, const libkineto::ITraceActivity* op) {
    auto& activity = add(type_of(timing.activity), timing.name, op);
    activity.startTime = timing.start;
    activity.endTime = timing.end;
    activity.device = timing.device;
    if (timing.bytes) activity.addMetadataQuoted("bytes", std::to_string(timing.bytes));
    return activity;
  }
  GenericTraceActivity& add(ActivityType type, const char* name,
                            const libkineto::ITraceActivity* op) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& activity = *buffer_->activities.back();
    activity.id = int32_t(flow_);
    activity.flow.id = flow_;
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.linked = op;
    return activity;
  }

  size_t since_ = 0;
  bool listening_ = false;
  uint32_t flow_ = 0;
  std::vector<Timing> timings_;
  std::unique_ptr<CpuTraceBuffer> buffer_ = std::make_unique<CpuTraceBuffer>();
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const auto* name = new std::string("ocl");
    return *name;
  }
  const std::set<ActivityType>& availableActivities() const override { return activity_types(); }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& wanted, const libkineto::Config&) override {
    if (!wanted.count(ActivityType::PRIVATEUSE1_RUNTIME)) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& wanted,
      const libkineto::Config& config) override {
    return configure(wanted, config);
  }
};

#endif  // OCL_HAS_KINETO

// torch.autograd.profiler: a marker before and after each operator.
struct Stubs final : torch::profiler::impl::ProfilerStubs {
  using Event = torch::profiler::impl::ProfilerVoidEventStub;

  void record(c10::DeviceIndex* device, Event* event, int64_t* host_ns) const override {
    const c10::DeviceIndex index = current_device();
    if (device) *device = index;
    if (host_ns) *host_ns = host_now();
    observer().before_command();
    wait_for_programs(index);
    Device& owner = device_at(index);
    cl_event marker = nullptr;
    check(cl.clEnqueueMarkerWithWaitList(queue_of(index), 0, nullptr, &marker), owner, "profiler");
    *event = Event(marker, [](void* old) { cl.clReleaseEvent(static_cast<cl_event>(old)); });
  }
  // microseconds
  float elapsed(const Event* first, const Event* second) const override {
    return float(double(time_of(*second) - time_of(*first)) * 1e-3);
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return device_count() > 0; }
  void onEachDevice(std::function<void(int)> visit) const override {
    const c10::DeviceIndex before = current_device();
    for (int index = 0; index < device_count(); ++index) {
      set_current_device(c10::DeviceIndex(index));
      visit(index);
    }
    set_current_device(before);
  }
  void synchronize() const override { finish(current_device()); }

 private:
  static int64_t time_of(const Event& event) {
    auto* marker = static_cast<cl_event>(event.get());
    cl.clWaitForEvents(1, &marker);
    uint64_t time = 0;
    cl.clGetEventProfilingInfo(marker, CL_PROFILING_COMMAND_END, sizeof time, &time, nullptr);
    return int64_t(time);
  }
};

}  // namespace

void register_profiler() {
#ifdef OCL_HAS_KINETO
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
#endif
  static auto* stubs = new Stubs();  // torch uses them until the process ends
  torch::profiler::impl::registerPrivateUse1Methods(stubs);
}

}  // namespace ocl

// What torch asks of a device besides memory: the guard, events, hooks and random generators.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "dispatch/idle.h"
#include "dispatch/operators.h"
#include "fusion/held.h"
#include "profiler/kineto.h"
#include "runtime/deferred.h"
#include "runtime/faults.h"
#include "runtime/graph.h"
#include "runtime/observer.h"
#include "runtime/pinned.h"
#include "runtime/submitter.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

// One in-order queue per device is the only stream: streams are names, which a thread keeps and
// hands out again, and waiting for one on its own device is a no-op.
std::atomic<c10::StreamId> last_stream{0};
thread_local std::array<c10::StreamId, kMostDevices> current_streams{};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, current_device()}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override {
    // while closed there is nothing to check: autograd's threads name their device at birth
    if (device.index() != current_device())
      set_current_device(is_closed() ? device.index() : checked(device.index()));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_current_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return c10::DeviceIndex(promised_device_count());
  }

  c10::Stream getStream(c10::Device device) const override {
    return stream_of(device, current_streams.at(size_t(index_of(device))));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream_of(device, ++last_stream);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_streams.at(size_t(stream.device_index())) = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    void* marker = nullptr;
    record(&marker, stream, stream.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
    const bool done = queryEvent(marker);
    destroyEvent(marker, stream.device_index());
    return done;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    finish(checked(index));
    tell_idle(index);
    raise_fault(device_at(index));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    destroyEvent(*event, stream.device_index());
    *event = nullptr;
    if (graph_here(stream.device_index())) return;  // recorded commands are in order
    observer().before_command();
    Device& device = device_at(checked(stream.device_index()));
    wait_for_programs(stream.device_index());
    cl_event marker = nullptr;
    const cl_command_queue queue = queue_of(stream.device_index());
    check(cl.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker), device, "event record");
    cl.clFlush(queue);
    *event = marker;
  }
  // Queues of two devices share no context: the host waits instead.
  void block(void* event, const c10::Stream&) const override { synchronizeEvent(event); }
  bool queryEvent(void* event) const override {
    return !event || is_complete(static_cast<cl_event>(event));
  }
  void synchronizeEvent(void* event) const override {
    auto* marker = static_cast<cl_event>(event);
    if (!marker) return;
    const cl_int status = cl.clWaitForEvents(1, &marker);
    TORCH_CHECK(status == CL_SUCCESS, "waiting for an event: ", error_name(status));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event && !in_forked_child()) cl.clReleaseEvent(static_cast<cl_event>(event));
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    uint64_t times[2] = {};
    void* events[2] = {start, end};
    for (int i = 0; i < 2; ++i) {
      synchronizeEvent(events[i]);
      const cl_int status =
          cl.clGetEventProfilingInfo(static_cast<cl_event>(events[i]), CL_PROFILING_COMMAND_END,
                                     sizeof times[i], &times[i], nullptr);
      TORCH_CHECK(status == CL_SUCCESS, "elapsed time: ", error_name(status));
    }
    return (double(times[1]) - double(times[0])) * 1e-6;
  }
#if __has_include(<c10/core/DeviceCapability.h>)
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    const Device& asked = device_at(checked(index_of(device)));
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& has = capability.capability_data.supported_scalar_types;
    has.has_Byte = has.has_Char = has.has_Short = has.has_Int = has.has_Long = has.has_Bool = 1;
    has.has_Half = has.has_BFloat16 = has.has_Float = 1;
    has.has_ComplexHalf = has.has_ComplexFloat = 1;
    has.has_Double = has.has_ComplexDouble = asked.doubles;
    // these are converted, and nothing computes with them
    has.has_UInt16 = has.has_UInt32 = has.has_UInt64 = 1;
    has.has_Float8_e4m3fn = has.has_Float8_e4m3fnuz = has.has_Float8_e8m0fnu = 1;
    has.has_Float8_e5m2 = has.has_Float8_e5m2fnuz = 1;
    return capability;
  }
#endif

 private:
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current_device();
  }
  static c10::Stream stream_of(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {kType, index_of(device)}, id);
  }
};

// Counter-based: `seed` is the key, `offset` the next unused counter. An operator that draws n
// values reads both, then moves `offset` on; the same pair gives the same numbers on any device.
struct GeneratorImpl final : c10::GeneratorImpl {
  explicit GeneratorImpl(c10::DeviceIndex index)
      : c10::GeneratorImpl({kType, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  uint64_t current_seed() const override { return seed_; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({2 * int64_t(sizeof(uint64_t))}, at::kByte);
    auto* words = reinterpret_cast<uint64_t*>(state.mutable_data_ptr());
    words[0] = seed_;
    words[1] = offset_;
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 && state.dtype() == at::kByte && state.device().is_cpu() &&
                    state.is_contiguous(),
                "the state of an ocl generator is 16 contiguous bytes on the CPU (seed, offset); "
                "got ",
                state.numel(), " values of ", state.dtype(), " on ", state.device());
    const auto* words = static_cast<const uint64_t*>(state.data());
    seed_ = words[0];
    offset_ = words[1];
  }

 private:
  GeneratorImpl* clone_impl() const override {
    auto* copy = new GeneratorImpl(device_.index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex index) {
  ensure_open();
  static auto* all = [] {
    auto* list = new std::vector<at::Generator>();
    for (int i = 0; i < device_count(); ++i)
      list->push_back(at::make_generator<GeneratorImpl>(c10::DeviceIndex(i)));
    return list;
  }();
  return (*all)[size_t(checked(index < 0 ? current_device() : index))];
}

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return is_closed() || device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return device_count() > 0; }
  c10::DeviceIndex deviceCount() const override {
    ensure_open();
    return c10::DeviceIndex(device_count());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_current_device(checked(index));
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = current_device();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    return {kType, locate_or_throw(data, "device of a pointer").block->device};
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<GeneratorImpl>(checked(index < 0 ? current_device() : index));
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    ensure_open();
    return pinned_allocator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "this storage cannot be resized");
  const c10::Device device = storage.device();
  const c10::impl::VirtualGuardImpl guard(kType);
  const c10::Device before = guard.exchangeDevice(device);
  c10::DataPtr grown = allocator()->allocate(bytes);
  guard.uncheckedSetDevice(before);
  if (const size_t kept = std::min(bytes, storage.nbytes()))
    copy(grown.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(grown));
  storage.set_nbytes(bytes);
}

}  // namespace ocl

extern "C" {

// Registers the device type with torch; the devices themselves may come later.
void ocl_register() {
  c10::SetAllocator(ocl::kType, ocl::allocator());
  static auto* guard = new ocl::Guard();  // torch uses both until the process ends
  static auto* hooks = new ocl::Hooks();
  c10::impl::registerDeviceGuard(ocl::kType, guard);
  at::RegisterPrivateUse1HooksInterface(hooks);
  ocl::pinned_allocator();
  ocl::register_profiler();
  ocl::observe(ocl::fusion_observer());
  ocl::watch_forks();
}
}

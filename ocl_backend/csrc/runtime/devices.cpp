#include "runtime/devices.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <deque>

#include "runtime/status.h"
#include "runtime/system.h"

namespace ocl {

namespace {

bool forked = false;
std::atomic<void (*)()> opener{nullptr};  // null: the devices are open
thread_local int opening_status = kOk;    // each thread that calls `opener` has its own
std::atomic<int> promised{0};
std::atomic<bool> is_promise_taken{false};
thread_local c10::DeviceIndex current = 0;

// Leaked on purpose: tensors die after static destructors have run.
std::deque<Device>& devices() {
  static auto* list = new std::deque<Device>();
  return *list;
}

}  // namespace

void ensure_open() {
  auto* const open = opener.load(std::memory_order_acquire);  // another thread may null it
  if (!open) return;
  // no lock: `open` takes the interpreter's lock, which a waiting thread may hold, and Python's
  // import lock lets one thread open the devices
  open();
  if (opening_status) raise(opening_status);
}

bool is_closed() { return opener.load(std::memory_order_acquire) != nullptr; }

int promised_device_count() {
  if (!is_closed()) return device_count();
  is_promise_taken = true;
  return promised;
}

int device_count() { return int(devices().size()); }

c10::DeviceIndex checked(c10::DeviceIndex index) {
  ensure_open();
  TORCH_CHECK(index >= 0 && index < device_count(), "there is no device ocl:", int(index), "; ",
              device_count(), " OpenCL device(s) were found. ",
              device_count() ? "torch.ocl.device_count() tells how many there are, "
                             : "pip install 'oclgen[cpu]' brings a processor's, ",
              "and `oclgen doctor` says what was tried.");
  return index;
}

Device& device_at(c10::DeviceIndex index) { return devices()[size_t(index)]; }
c10::DeviceIndex current_device() { return current; }
void set_current_device(c10::DeviceIndex index) { current = index; }
bool in_forked_child() { return forked; }

void check_not_forked() {
  TORCH_CHECK(!forked, "an OpenCL device cannot be used in a forked child of the process that "
                       "opened it. Start the child with the 'spawn' method.");
}

void watch_forks() {
  when_forked([] { forked = device_count() > 0; });
}

}  // namespace ocl

extern "C" {

// Leaves the opening of the devices to `opener`, called at first use; `promise` is how many it is
// expected to find. Null: they are open.
void ocl_open_later(void (*opener)(), int promise) {
  ocl::promised = promise;
  ocl::opener.store(opener, std::memory_order_release);  // behind it: the devices that were added
}

// The `Status` of the opening in this thread, and what prevented it.
void ocl_set_opening_status(int status, const char* text) {
  ocl::opening_status = ocl::fail(status, text);
}

// Binds the OpenCL entry points; returns the name of a missing one, or null.
const char* ocl_bind(const char* loader) { return ocl::bind(loader); }

// How many devices can be added: those that were promised, if autograd has asked for the promise.
int ocl_room() { return ocl::is_promise_taken ? ocl::promised.load() : int(ocl::kMostDevices); }

void ocl_add_device(void* context, void* queue, const char* name, size_t total, size_t largest,
                    int doubles) {
  auto& device = ocl::devices().emplace_back();
  device.context = static_cast<ocl::cl_context>(context);
  device.queue = static_cast<ocl::cl_command_queue>(queue);
  device.name = name;
  device.total_bytes = total;
  device.largest_bytes = largest;
  device.doubles = doubles != 0;
}

// Refuses larger buffers than `largest_bytes`, as the device of a profile does.
void ocl_enforce_largest(int device) {
  auto& one = ocl::devices()[size_t(device)];
  one.enforced_bytes = one.largest_bytes;
}

// Whether the device's memory is not the host's, so that large copies go through pinned memory.
void ocl_set_own_memory(int device, int own) { ocl::devices()[size_t(device)].own_memory = own; }

// Lets kernels copy within the device, where the driver's own command takes longer.
void ocl_copy_by_kernels(int device) { ocl::devices()[size_t(device)].copies_slowly = true; }
}

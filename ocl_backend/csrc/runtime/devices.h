// The devices of this process: opened at first use, or by Python. Knows no memory and no tensors.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "runtime/opencl.h"

namespace ocl {

// Tables by device are this long.
constexpr size_t kMostDevices = 64;

struct Device {
  cl_context context;
  cl_command_queue queue;
  std::string name;
  size_t total_bytes;        // the device's memory
  size_t largest_bytes;      // CL_DEVICE_MAX_MEM_ALLOC_SIZE
  size_t enforced_bytes = SIZE_MAX;  // a larger buffer is refused here, not by the driver
  bool doubles;              // cl_khr_fp64
  bool own_memory = false;   // not the host's
  bool is_processor = false;  // its buffers lie in the host's memory, in pages of 2 MiB
  bool copies_slowly = false;  // the driver's command takes longer than a kernel
  std::mutex submission;     // setting arguments and enqueueing is one step
  std::atomic<const char*> last_kernel{nullptr};  // named when an asynchronous failure surfaces
  std::atomic<int64_t> faults{0};            // address of the record that `faults.h` speaks of
  std::atomic<bool> may_have_faulted{false};  // a kernel that writes there was launched
};

// Opens the devices where that was left to first use; raises what prevented it.
void ensure_open();
bool is_closed();
// How many devices there are; before they are open, how many were found the last time. Autograd
// starts a thread for each at the first backward pass, so a later opening adds no more than that.
int promised_device_count();

int device_count();
// Returns `index`; raises if there is no such device, once all are open.
c10::DeviceIndex checked(c10::DeviceIndex index);
Device& device_at(c10::DeviceIndex index);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);

// Raises in a forked child, where the parent's runtime threads do not exist.
void check_not_forked();
bool in_forked_child();
// A child of a process that opened a device may not use it; one that opened none may open its own.
void watch_forks();

}  // namespace ocl

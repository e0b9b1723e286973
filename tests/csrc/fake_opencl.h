// An OpenCL that runs in the test's process: buffers are host memory, every command has run when
// its enqueueing returns. It takes no lock in `clSetKernelArg`: that belongs to the shim.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/opencl.h"

// Kernels take (in, in_offset, out, out_offset, value) and do out[i] = in[i] + value for as many
// `int64_t` as the global size; the offsets are in items.
struct ocl::cl_kernel_ {
  std::string name;
  std::vector<std::vector<char>> arguments = std::vector<std::vector<char>>(5);
  std::atomic<int> references{1};
};

namespace fake {

constexpr size_t kDeviceBytes = size_t(64) << 20;

// Fills `ocl::cl`, adds devices 0 and 1 of `kDeviceBytes` bytes, and lets fusion observe them.
void open();

// Names of the kernels that ran on all devices since the last `clear_log`, in order.
std::vector<std::string> log();
void clear_log();

// Code that the next enqueueing of a kernel, or creation of a buffer, returns; once.
extern std::atomic<ocl::cl_int> next_launch_fails, next_buffer_fails;

// While one exists, the driver takes no command that touches memory: who enqueues one waits. It
// holds no lock, so that a test may do under it what it likes.
class Busy {
 public:
  Busy();
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

// Buffers that are not released yet, and calls of `clSetKernelArg`.
extern std::atomic<int> live_buffers, arguments_set;

}  // namespace fake

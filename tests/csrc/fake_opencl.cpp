#include "fake_opencl.h"

#include <cstdlib>
#include <cstring>
#include <thread>

#include "entries.h"
#include "fusion/held.h"
#include "runtime/devices.h"
#include "runtime/observer.h"

struct ocl::cl_mem_ {
  size_t size;
  char* bytes;
  bool is_own;  // not the host's
};

struct ocl::cl_event_ {
  std::atomic<int> references{1};
};

namespace fake {

std::atomic<ocl::cl_int> next_launch_fails{0}, next_buffer_fails{0};
std::atomic<int> live_buffers{0}, arguments_set{0};

namespace {

using namespace ocl;

std::mutex queue_mutex;  // commands run one at a time, as in a queue that is in order
std::vector<std::string> ran;
std::atomic<bool> is_busy{false};

// Lets a command run, once the driver is not busy.
std::unique_lock<std::mutex> turn() {
  while (is_busy.load(std::memory_order_relaxed)) std::this_thread::yield();
  return std::unique_lock<std::mutex>(queue_mutex);
}

void signal(cl_event* event) {
  if (event) *event = new cl_event_();
}

cl_mem create_buffer(cl_context, cl_mem_flags flags, size_t size, void* host, cl_int* status) {
  *status = next_buffer_fails.exchange(0);
  if (*status) return nullptr;
  ++live_buffers;
  const bool is_own = !(flags & CL_MEM_USE_HOST_PTR);
  return new cl_mem_{size, static_cast<char*>(is_own ? std::calloc(size, 1) : host), is_own};
}

cl_int release_buffer(cl_mem buffer) {
  --live_buffers;
  if (buffer->is_own) std::free(buffer->bytes);
  delete buffer;
  return CL_SUCCESS;
}

cl_int set_argument(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  const auto* bytes = static_cast<const char*>(value);
  kernel->arguments.at(index).assign(bytes, bytes + size);
  ++arguments_set;
  return CL_SUCCESS;
}

// Every kernel is of the program null.
cl_int kernel_info(cl_kernel, cl_uint, size_t size, void* value, size_t*) {
  std::memset(value, 0, size);
  return CL_SUCCESS;
}

cl_kernel create_kernel(cl_program, const char* name, cl_int* status) {
  *status = CL_SUCCESS;
  return new cl_kernel_{name};
}

cl_int release_kernel(cl_kernel kernel) {
  if (--kernel->references == 0) delete kernel;
  return CL_SUCCESS;
}

template <typename T>
T argument(cl_kernel kernel, size_t index) {
  T value{};
  std::memcpy(&value, kernel->arguments[index].data(), sizeof value);
  return value;
}

cl_int launch(cl_command_queue, cl_kernel kernel, cl_uint, const size_t*, const size_t* global,
              const size_t*, cl_uint, const cl_event*, cl_event* event) {
  const auto lock = turn();
  // relaxed: a test of threads must not be ordered by what it does not test
  if (next_launch_fails.load(std::memory_order_relaxed)) return next_launch_fails.exchange(0);
  const auto* in = reinterpret_cast<int64_t*>(argument<cl_mem>(kernel, 0)->bytes);
  auto* out = reinterpret_cast<int64_t*>(argument<cl_mem>(kernel, 2)->bytes);
  in += argument<int64_t>(kernel, 1);
  out += argument<int64_t>(kernel, 3);
  for (size_t i = 0; i < *global; ++i) out[i] = in[i] + argument<int64_t>(kernel, 4);
  ran.push_back(kernel->name);
  signal(event);
  return CL_SUCCESS;
}

cl_int read_buffer(cl_command_queue, cl_mem buffer, cl_bool, size_t offset, size_t size,
                   void* target, cl_uint, const cl_event*, cl_event* event) {
  const auto lock = turn();
  std::memcpy(target, buffer->bytes + offset, size);
  signal(event);
  return CL_SUCCESS;
}

cl_int write_buffer(cl_command_queue, cl_mem buffer, cl_bool, size_t offset, size_t size,
                    const void* source, cl_uint, const cl_event*, cl_event* event) {
  const auto lock = turn();
  std::memcpy(buffer->bytes + offset, source, size);
  signal(event);
  return CL_SUCCESS;
}

cl_int copy_buffer(cl_command_queue, cl_mem source, cl_mem target, size_t from, size_t to,
                   size_t size, cl_uint, const cl_event*, cl_event* event) {
  const auto lock = turn();
  std::memcpy(target->bytes + to, source->bytes + from, size);
  signal(event);
  return CL_SUCCESS;
}

cl_int fill_buffer(cl_command_queue, cl_mem buffer, const void* pattern, size_t pattern_size,
                   size_t offset, size_t, cl_uint, const cl_event*, cl_event* event) {
  const auto lock = turn();
  std::memcpy(buffer->bytes + offset, pattern, pattern_size);
  signal(event);
  return CL_SUCCESS;
}

cl_int mark(cl_command_queue, cl_uint, const cl_event*, cl_event* event) {
  signal(event);
  return CL_SUCCESS;
}

cl_int event_info(cl_event, cl_uint, size_t, void* value, size_t*) {
  const cl_int complete = CL_COMPLETE;
  std::memcpy(value, &complete, sizeof complete);
  return CL_SUCCESS;
}

cl_int event_time(cl_event, cl_uint, size_t size, void* value, size_t*) {
  std::memset(value, 0, size);
  return CL_SUCCESS;
}

cl_int retain_event(cl_event event) {
  ++event->references;
  return CL_SUCCESS;
}

cl_int release_event(cl_event event) {
  if (--event->references == 0) delete event;
  return CL_SUCCESS;
}

cl_int wait(cl_uint, const cl_event*) { return CL_SUCCESS; }
cl_int wait_for_queue(cl_command_queue) { return CL_SUCCESS; }

}  // namespace

void open() {
  cl.clCreateBuffer = create_buffer;
  cl.clReleaseMemObject = release_buffer;
  cl.clSetKernelArg = set_argument;
  cl.clCreateKernel = create_kernel;
  cl.clGetKernelInfo = kernel_info;
  cl.clReleaseKernel = release_kernel;
  cl.clEnqueueNDRangeKernel = launch;
  cl.clEnqueueReadBuffer = read_buffer;
  cl.clEnqueueWriteBuffer = write_buffer;
  cl.clEnqueueCopyBuffer = copy_buffer;
  cl.clEnqueueFillBuffer = fill_buffer;
  cl.clEnqueueMarkerWithWaitList = mark;
  cl.clWaitForEvents = wait;
  cl.clGetEventInfo = event_info;
  cl.clGetEventProfilingInfo = event_time;
  cl.clRetainEvent = retain_event;
  cl.clReleaseEvent = release_event;
  cl.clFlush = wait_for_queue;
  cl.clFinish = wait_for_queue;
  for (const char* name : {"fake 0", "fake 1"})
    ocl_add_device(nullptr, nullptr, name, kDeviceBytes, kDeviceBytes, 1);
  observe(fusion_observer());
  watch_forks();
}

Busy::Busy() { is_busy = true; }
Busy::~Busy() { is_busy = false; }

std::vector<std::string> log() {
  const std::lock_guard<std::mutex> lock(queue_mutex);
  return ran;
}

void clear_log() {
  const std::lock_guard<std::mutex> lock(queue_mutex);
  ran.clear();
}

}  // namespace fake

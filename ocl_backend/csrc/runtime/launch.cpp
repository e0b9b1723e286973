// Prepared kernel launches: everything that does not change is set once, a call passes only what
// does. Called from Python through ctypes, and by what is recalled; nothing here waits for the
// device.
#include "runtime/launch.h"

#include <cstring>
#include <set>
#include <sstream>
#include <vector>

#include "runtime/faults.h"
#include "runtime/profile.h"

namespace ocl {

namespace {

enum Kind : int32_t { kBuffer = 0, kInt = 1, kLong = 2, kFloat = 3 };

// An argument that changes from call to call. A buffer stands for two arguments of the kernel,
// the pointer at `index` and its `long` element offset behind it.
struct Changing {
  Kind kind;
  cl_uint index;
  int32_t item_bytes;
  cl_mem last_buffer;
  int64_t last_value;  // element offset or the scalar's bits
  bool is_set;
};

struct Launch final : Prepared {
  ~Launch() override { cl.clReleaseKernel(kernel); }
  int enqueue(const int64_t* words) override;

  cl_kernel kernel;
  c10::DeviceIndex device;
  const char* name;
  cl_uint dimensions;
  size_t global_size[3];
  size_t local_size[3];
  bool has_local;
  uint64_t generation;
  std::vector<Changing> arguments;
};

thread_local std::string error_text;

int fail(const Launch& launch, int status, const std::string& reason) {
  std::ostringstream text;
  text << device_at(launch.device).name << ": kernel " << launch.name << ", global size (";
  for (cl_uint d = 0; d < launch.dimensions; ++d) text << (d ? ", " : "") << launch.global_size[d];
  text << "), local size ";
  if (!launch.has_local) text << "left to the runtime";
  for (cl_uint d = 0; launch.has_local && d < launch.dimensions; ++d)
    text << (d ? ", " : "(") << launch.local_size[d];
  text << (launch.has_local ? "): " : ": ") << reason;
  return ocl::fail(status, text.str());
}

int fail_at(const Launch& launch, const Changing& argument, const std::string& reason) {
  return fail(launch, kFailed, "argument " + std::to_string(argument.index) + ": " + reason);
}

int set(const Launch& launch, const Changing& argument, cl_uint index, size_t size,
        const void* value) {
  const cl_int status = cl.clSetKernelArg(launch.kernel, index, size, value);
  return status == CL_SUCCESS ? kOk : fail_at(launch, argument, error_name(status));
}

int set_buffer(const Launch& launch, Changing& argument, int64_t address) {
  cl_mem buffer = nullptr;
  int64_t offset = 0;
  if (address) {
    const Location found = locate(reinterpret_cast<const void*>(address));
    if (!found.block)
      return fail_at(launch, argument, "not memory of an ocl device. Move the tensor there first");
    if (found.block->device != launch.device)
      return fail_at(launch, argument,
                     "lies on ocl:" + std::to_string(found.block->device) +
                         ", the kernel runs on ocl:" + std::to_string(launch.device) +
                         ". Move the tensors to one device");
    if (found.offset % size_t(argument.item_bytes))
      return fail_at(launch, argument,
                     "starts at byte " + std::to_string(found.offset) +
                         ", which is no multiple of its " + std::to_string(argument.item_bytes) +
                         "-byte items. Clone the tensor");
    may_fault(device_at(launch.device), address);
    buffer = found.block->buffer;
    offset = int64_t(found.offset) / argument.item_bytes;
  }
  if (!argument.is_set || buffer != argument.last_buffer)
    if (const int status = set(launch, argument, argument.index, sizeof buffer, &buffer))
      return status;
  if (!argument.is_set || offset != argument.last_value)
    if (const int status = set(launch, argument, argument.index + 1, sizeof offset, &offset))
      return status;
  argument.last_buffer = buffer;
  argument.last_value = offset;
  argument.is_set = true;
  return kOk;
}

int set_scalar(const Launch& launch, Changing& argument, int64_t bits, size_t size) {
  if (argument.is_set && argument.last_value == bits) return kOk;
  if (const int status = set(launch, argument, argument.index, size, &bits)) return status;
  argument.last_value = bits;
  argument.is_set = true;
  return kOk;
}

int set_arguments(Launch& launch, const int64_t* words) {
  if (launch.generation != release_generation()) {
    // a buffer given back to the driver may return under the same handle
    for (auto& argument : launch.arguments) argument.is_set = false;
    launch.generation = release_generation();
  }
  for (auto& argument : launch.arguments) {
    int status = kOk;
    if (argument.kind == kBuffer) {
      status = set_buffer(launch, argument, *words);
    } else if (argument.kind == kFloat) {
      double given;
      std::memcpy(&given, words, sizeof given);
      const float value = float(given);
      int32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      status = set_scalar(launch, argument, bits, sizeof value);
    } else {
      status = set_scalar(launch, argument, *words,
                          argument.kind == kInt ? sizeof(int32_t) : sizeof(int64_t));
    }
    if (status) return status;
    ++words;
  }
  return kOk;
}

cl_int submit(Launch& launch) {
  Device& device = device_at(launch.device);
  device.last_kernel.store(launch.name, std::memory_order_relaxed);
  Timed timed(launch.device, Activity::kKernel, launch.name);
  return cl.clEnqueueNDRangeKernel(
      device.queue, launch.kernel, launch.dimensions, nullptr, launch.global_size,
      launch.has_local ? launch.local_size : nullptr, 0, nullptr, timed.event());
}

}  // namespace

int fail(int status, const std::string& text) {
  error_text = text;
  return status;
}

int fail_with_exception() try { throw; } catch (const c10::OutOfMemoryError& error) {
  return fail(kOutOfMemory, error.what_without_backtrace());
} catch (const std::exception& error) {
  return fail(kFailed, error.what());
}

const std::string& last_error() { return error_text; }

void raise(int status) {
  status %= kPython;
  TORCH_CHECK_WITH(OutOfMemoryError, status != kOutOfMemory, error_text);
  if (status == kRefused)
    throw c10::AcceleratorError({__func__, __FILE__, uint32_t(__LINE__)}, status, error_text);
  TORCH_CHECK(false, error_text);
}

const char* keep_name(const char* name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string>();
  const std::lock_guard<std::mutex> lock(mutex);
  return names->insert(name).first->c_str();
}

int Launch::enqueue(const int64_t* words) {
  if (in_forked_child())
    return fail(*this, kFailed,
                "the device cannot be used in a forked child. "
                "Start the child with the 'spawn' method");
  cl_int code = CL_SUCCESS;
  {
    const std::lock_guard<std::mutex> lock(device_at(device).submission);
    if (const int status = set_arguments(*this, words)) return status;
    code = submit(*this);
    if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY) {
      // a driver that allocates at first use ran out: make room and try once more
      empty_cache(device);
      code = submit(*this);
    }
  }
  if (code == CL_SUCCESS) return kOk;
  const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY;
  return fail(*this, memory ? kOutOfMemory : kRefused, error_name(code));
}

}  // namespace ocl

extern "C" {

// Returns a new kernel of a program, null if it has none of that name. It is the caller's until
// `ocl_kernel_delete`; launches keep it.
void* ocl_kernel_new(void* program, const char* name) {
  ocl::cl_int status = ocl::CL_SUCCESS;
  return ocl::cl.clCreateKernel(static_cast<ocl::cl_program>(program), name, &status);
}

void ocl_kernel_delete(void* kernel) {
  ocl::cl.clReleaseKernel(static_cast<ocl::cl_kernel>(kernel));
}

// Sets arguments that never change; `sizes` are the bytes of each value, values are 8 bytes apart.
// Returns how many the runtime took; why it refused the next one is in `ocl_last_error`.
uint32_t ocl_kernel_set(void* kernel, uint32_t count, const uint32_t* indices, const size_t* sizes,
                        const int64_t* values) {
  for (uint32_t i = 0; i < count; ++i) {
    const ocl::cl_int status = ocl::cl.clSetKernelArg(static_cast<ocl::cl_kernel>(kernel),
                                                      indices[i], sizes[i], values + i);
    if (status == ocl::CL_SUCCESS) continue;
    ocl::fail(ocl::kFailed, ocl::error_name(status));
    return i;
  }
  return count;
}

// `kinds` are `Kind`s; `indices` are positions among the kernel's arguments; `item_bytes` the size
// of a buffer's items; `local` may be null.
void* ocl_launch_new(int device, void* kernel, const char* name, uint32_t dimensions,
                     const size_t* global, const size_t* local, uint32_t count,
                     const int32_t* kinds, const int32_t* indices, const int32_t* item_bytes) {
  const auto launch = std::make_shared<ocl::Launch>();
  launch->kernel = static_cast<ocl::cl_kernel>(kernel);
  ocl::cl.clRetainKernel(launch->kernel);
  launch->device = c10::DeviceIndex(device);
  launch->name = ocl::keep_name(name);
  launch->dimensions = dimensions;
  launch->has_local = local != nullptr;
  for (uint32_t d = 0; d < dimensions; ++d) {
    launch->global_size[d] = global[d];
    if (local) launch->local_size[d] = local[d];
  }
  for (uint32_t i = 0; i < count; ++i) {
    launch->arguments.push_back(
        {ocl::Kind(kinds[i]), ocl::cl_uint(indices[i]), item_bytes[i], nullptr, 0, false});
    launch->is_address.push_back(kinds[i] == ocl::kBuffer);
  }
  return new ocl::Handle(launch);
}

void ocl_delete(void* prepared) { delete static_cast<ocl::Handle*>(prepared); }

const char* ocl_last_error() { return ocl::last_error().c_str(); }
}

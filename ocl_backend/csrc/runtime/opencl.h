// The part of the OpenCL 1.2 interface the device uses, bound at run time to pyopencl's loader.
//
// No OpenCL headers and no loader are needed to compile. Types, constants and signatures follow
// the Khronos OpenCL 1.2 specification; `bind` fills the table `cl`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ocl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_bool = cl_uint;
using cl_mem_flags = uint64_t;
using cl_context = struct cl_context_*;
using cl_command_queue = struct cl_command_queue_*;
using cl_mem = struct cl_mem_*;
using cl_program = struct cl_program_*;
using cl_kernel = struct cl_kernel_*;
using cl_event = struct cl_event_*;

constexpr cl_bool CL_FALSE = 0;
constexpr cl_bool CL_TRUE = 1;
constexpr cl_int CL_SUCCESS = 0;
constexpr cl_int CL_COMPLETE = 0;
constexpr cl_int CL_MEM_OBJECT_ALLOCATION_FAILURE = -4;
constexpr cl_int CL_OUT_OF_RESOURCES = -5;
constexpr cl_int CL_OUT_OF_HOST_MEMORY = -6;
constexpr cl_int CL_MEM_COPY_OVERLAP = -8;
constexpr cl_mem_flags CL_MEM_READ_WRITE = 1 << 0;
constexpr cl_mem_flags CL_MEM_USE_HOST_PTR = 1 << 3;
constexpr cl_mem_flags CL_MEM_ALLOC_HOST_PTR = 1 << 4;
constexpr uint64_t CL_MAP_READ = 1;
constexpr uint64_t CL_MAP_READ_WRITE = 3;
constexpr cl_uint CL_KERNEL_NUM_ARGS = 0x1191;
constexpr cl_uint CL_KERNEL_PROGRAM = 0x1194;
constexpr cl_uint CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3;
constexpr cl_uint CL_PROFILING_COMMAND_START = 0x1282;
constexpr cl_uint CL_PROFILING_COMMAND_END = 0x1283;

// X(function, return type, parameters): one line per entry point.
#define OCL_ENTRY_POINTS(X)                                                                       \
  X(clCreateBuffer, cl_mem, (cl_context, cl_mem_flags, size_t, void*, cl_int*))                   \
  X(clReleaseMemObject, cl_int, (cl_mem))                                                         \
  X(clCreateKernel, cl_kernel, (cl_program, const char*, cl_int*))                                \
  X(clGetKernelInfo, cl_int, (cl_kernel, cl_uint, size_t, void*, size_t*))                        \
  X(clSetKernelArg, cl_int, (cl_kernel, cl_uint, size_t, const void*))                            \
  X(clReleaseKernel, cl_int, (cl_kernel))                                                         \
  X(clEnqueueNDRangeKernel, cl_int,                                                               \
    (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,  \
     const cl_event*, cl_event*))                                                                 \
  X(clEnqueueReadBuffer, cl_int,                                                                  \
    (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint, const cl_event*,          \
     cl_event*))                                                                                  \
  X(clEnqueueWriteBuffer, cl_int,                                                                 \
    (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*,    \
     cl_event*))                                                                                  \
  X(clEnqueueCopyBuffer, cl_int,                                                                  \
    (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event*,          \
     cl_event*))                                                                                  \
  X(clEnqueueFillBuffer, cl_int,                                                                  \
    (cl_command_queue, cl_mem, const void*, size_t, size_t, size_t, cl_uint, const cl_event*,     \
     cl_event*))                                                                                  \
  X(clEnqueueMapBuffer, void*,                                                                    \
    (cl_command_queue, cl_mem, cl_bool, uint64_t, size_t, size_t, cl_uint, const cl_event*,       \
     cl_event*, cl_int*))                                                                         \
  X(clEnqueueUnmapMemObject, cl_int,                                                              \
    (cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*))                       \
  X(clEnqueueMarkerWithWaitList, cl_int, (cl_command_queue, cl_uint, const cl_event*, cl_event*)) \
  X(clWaitForEvents, cl_int, (cl_uint, const cl_event*))                                          \
  X(clGetEventInfo, cl_int, (cl_event, cl_uint, size_t, void*, size_t*))                          \
  X(clGetEventProfilingInfo, cl_int, (cl_event, cl_uint, size_t, void*, size_t*))                 \
  X(clRetainEvent, cl_int, (cl_event))                                                            \
  X(clReleaseEvent, cl_int, (cl_event))                                                           \
  X(clFlush, cl_int, (cl_command_queue))                                                          \
  X(clFinish, cl_int, (cl_command_queue))

struct OpenCL {
// a declaration's parts stand in no parentheses
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define X(name, type, parameters) type(*name) parameters = nullptr;
  OCL_ENTRY_POINTS(X)
#undef X
};

extern OpenCL cl;

// Fills `cl` from the library at `path`; returns the name of the first missing entry point or null.
const char* bind(const char* path);

// Whether a command is over; one that failed is, too, and the next `clFinish` reports it.
bool is_complete(cl_event event);

// "CL_OUT_OF_RESOURCES" for -5; "OpenCL error -999" for a code the specification does not know.
const char* error_name(cl_int code);

}  // namespace ocl

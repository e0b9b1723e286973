// Binds the OpenCL entry points and names OpenCL's error codes. Holds no device state.
#include "runtime/opencl.h"

#include <cstdio>
#include <iterator>

#include "runtime/system.h"

namespace ocl {

OpenCL cl;

const char* bind(const char* path) {
  void* library = open_library(path);
  if (!library) return path;
#define X(name, type, parameters)                                            \
  cl.name = reinterpret_cast<decltype(cl.name)>(address_in(library, #name)); \
  if (!cl.name) return #name;
  OCL_ENTRY_POINTS(X)
#undef X
  return nullptr;
}

bool is_complete(cl_event event) {
  cl_int state = CL_COMPLETE;
  cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  return state <= CL_COMPLETE;  // negative: it failed
}

namespace {

// Codes 0 to -19 and -30 to -72 of the OpenCL specification, in order; the gap is unused.
constexpr const char* kRuntimeErrors[] = {
    "CL_SUCCESS",
    "CL_DEVICE_NOT_FOUND",
    "CL_DEVICE_NOT_AVAILABLE",
    "CL_COMPILER_NOT_AVAILABLE",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    "CL_OUT_OF_RESOURCES",
    "CL_OUT_OF_HOST_MEMORY",
    "CL_PROFILING_INFO_NOT_AVAILABLE",
    "CL_MEM_COPY_OVERLAP",
    "CL_IMAGE_FORMAT_MISMATCH",
    "CL_IMAGE_FORMAT_NOT_SUPPORTED",
    "CL_BUILD_PROGRAM_FAILURE",
    "CL_MAP_FAILURE",
    "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    "CL_COMPILE_PROGRAM_FAILURE",
    "CL_LINKER_NOT_AVAILABLE",
    "CL_LINK_PROGRAM_FAILURE",
    "CL_DEVICE_PARTITION_FAILED",
    "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
};
constexpr const char* kCallErrors[] = {
    "CL_INVALID_VALUE",           "CL_INVALID_DEVICE_TYPE",
    "CL_INVALID_PLATFORM",        "CL_INVALID_DEVICE",
    "CL_INVALID_CONTEXT",         "CL_INVALID_QUEUE_PROPERTIES",
    "CL_INVALID_COMMAND_QUEUE",   "CL_INVALID_HOST_PTR",
    "CL_INVALID_MEM_OBJECT",      "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "CL_INVALID_IMAGE_SIZE",      "CL_INVALID_SAMPLER",
    "CL_INVALID_BINARY",          "CL_INVALID_BUILD_OPTIONS",
    "CL_INVALID_PROGRAM",         "CL_INVALID_PROGRAM_EXECUTABLE",
    "CL_INVALID_KERNEL_NAME",     "CL_INVALID_KERNEL_DEFINITION",
    "CL_INVALID_KERNEL",          "CL_INVALID_ARG_INDEX",
    "CL_INVALID_ARG_VALUE",       "CL_INVALID_ARG_SIZE",
    "CL_INVALID_KERNEL_ARGS",     "CL_INVALID_WORK_DIMENSION",
    "CL_INVALID_WORK_GROUP_SIZE", "CL_INVALID_WORK_ITEM_SIZE",
    "CL_INVALID_GLOBAL_OFFSET",   "CL_INVALID_EVENT_WAIT_LIST",
    "CL_INVALID_EVENT",           "CL_INVALID_OPERATION",
    "CL_INVALID_GL_OBJECT",       "CL_INVALID_BUFFER_SIZE",
    "CL_INVALID_MIP_LEVEL",       "CL_INVALID_GLOBAL_WORK_SIZE",
    "CL_INVALID_PROPERTY",
};

}  // namespace

const char* error_name(cl_int code) {
  const int runtime = -code, call = -code - 30;
  if (runtime >= 0 && runtime < int(std::size(kRuntimeErrors))) return kRuntimeErrors[runtime];
  if (call >= 0 && call < int(std::size(kCallErrors))) return kCallErrors[call];
  thread_local char text[32];
  std::snprintf(text, sizeof text, "OpenCL error %d", code);
  return text;
}

}  // namespace ocl

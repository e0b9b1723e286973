// Bytes between host and device, and waiting. Knows addresses and sizes, not tensors.
// Every function raises with OpenCL's error name when the runtime refuses or the device fails.
#pragma once

#include "runtime/memory.h"

namespace ocl {

// Blocks until `bytes` bytes at device address `source` are in host memory.
void read(void* target, const void* source, size_t bytes);
// Returns once `source` may be changed. It may be changed late only if `source_stays` is true:
// then it must stay unchanged until the device has been synchronised.
void write(void* target, const void* source, size_t bytes, bool source_stays);
// Writes a few bytes to memory that no command has used yet: what is held back stays so, and may
// be what asks for it.
void write_new(void* target, const void* source, size_t bytes);
// Device to device, also between two devices (through the host).
void copy(void* target, const void* source, size_t bytes);
// Waits for everything enqueued; raises what an earlier asynchronous command died of.
void finish(c10::DeviceIndex index);
// Raises with the operation and OpenCL's error name unless `status` is CL_SUCCESS.
void check(cl_int status, const Device& device, const char* operation);

}  // namespace ocl

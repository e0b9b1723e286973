// Buffers of OpenCL, and where they lie: on a processor in the host's large pages.
//
// A processor translates the address of each page that it reads. Pages of 4 KiB halve the rate at
// which a core reads memory, and a page of 2 MiB holds several tensors, so buffers share one.
#pragma once

#include "runtime/devices.h"

namespace ocl {

// A buffer, and the host's memory that it was made of, null: the driver's own.
struct Buffer {
  cl_mem handle = nullptr;
  void* pages = nullptr;
};

// Makes a buffer, whose memory is there: drivers allocate at first use, so the first bytes are
// written here, where failing is handled. Returns OpenCL's status.
cl_int create_buffer(Device& device, size_t size, Buffer* made);
// Gives it back. No command uses it.
void release_buffer(const Buffer& buffer);

// Memory in large pages, at a multiple of 4096; null: there is none, or the system has no such.
void* take_pages(size_t bytes);
void give_pages_back(void* given);
// Bytes that are mapped for that.
size_t mapped_pages();

}  // namespace ocl

// What operating systems offer in different words: libraries, threads' numbers, forks.
#pragma once

#include <cstdint>

namespace ocl {

// The library at `path`, which is UTF-8, loaded if need be; null if it cannot be.
void* open_library(const char* path);

// The address of `name` in a library, or null. On Windows libraries that it loads are left out.
void* address_in(void* library, const char* name);

// This thread's number in the system, as torch's profiler has it.
int32_t thread_id();

// Calls `told` in each child that this process forks; Windows knows no forks.
void when_forked(void (*told)());

}  // namespace ocl

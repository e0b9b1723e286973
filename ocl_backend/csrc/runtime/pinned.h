// Page-locked host memory, from which the device copies while the host goes on.
#pragma once

#include <c10/core/Allocator.h>

namespace ocl {

// Torch knows it from the first call on.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);
// Gives the unused blocks back to the driver, after the copies that read them.
void empty_pinned_cache();

}  // namespace ocl

// Calls of few items that a processor's host makes itself, because it waits for the result anyway.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ocl {

// Makes the call on a stack by torch's own kernel for the CPU and returns true; or returns false
// and leaves the stack: the device is no processor, there are more than `most` items, the arguments
// lie on several devices, or the kernel refuses them. Of an operator that takes indices one must be
// a mask: others wait for nothing.
bool called_on_host(const c10::OperatorHandle& op, int64_t most, torch::jit::Stack* stack);

}  // namespace ocl

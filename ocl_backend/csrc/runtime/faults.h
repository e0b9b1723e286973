// Indices and values out of range, which kernels note and go on: told at the next call that waits.
#pragma once

#include "runtime/memory.h"

namespace ocl {

// Says that a launch takes `address`: where that is the device's record, it may hold a fault soon.
inline void may_fault(Device& device, int64_t address) {
  if (address == device.faults.load(std::memory_order_relaxed) && address)
    device.may_have_faulted.store(true, std::memory_order_relaxed);
}

// Raises torch.AcceleratorError if a kernel that has run noted a fault, and forgets it.
void raise_fault(Device& device);

}  // namespace ocl

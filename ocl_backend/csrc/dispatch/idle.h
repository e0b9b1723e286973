// Moments in which a device is idle, because this thread has just waited for it.
#pragma once

#include <c10/core/Device.h>

namespace ocl {

// Calls the function that `ocl_when_idle` got. No lock may be held: Python runs, and may wait.
void tell_idle(c10::DeviceIndex index);

}  // namespace ocl

// Moments in which a device has nothing left to do, since this thread has just waited for it.
#pragma once

#include <c10/core/Device.h>

namespace ocl {

// Tells who asked for it by `ocl_when_idle`. Called without a lock: Python runs, and may wait.
void tell_idle(c10::DeviceIndex index);

}  // namespace ocl

#include "dispatch/idle.h"

#include <atomic>

namespace ocl {

namespace {

using Callback = void (*)(int);
std::atomic<Callback> told{nullptr};

}  // namespace

void tell_idle(const c10::DeviceIndex index) {
  if (const Callback callback = told.load(std::memory_order_acquire)) callback(index);
}

}  // namespace ocl

extern "C" {

// Calls `callback(device)` whenever a thread has waited for a device; null: no longer.
void ocl_when_idle(void (*callback)(int)) { ocl::told.store(callback, std::memory_order_release); }
}

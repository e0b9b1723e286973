// torch.profiler as a listener of the device's commands.
#pragma once

namespace ocl {

// Called once.
void register_profiler();

}  // namespace ocl

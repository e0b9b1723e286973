// Launches that Python holds back (ocl_backend/held.py) until the next command of any device. Here
// are the blocks that they will use, and the call that lets them run first.
#pragma once

#include "memory.h"

namespace ocl {

// Enqueues what is held back, if anything is. To be called before any command is enqueued, without
// a lock: it takes the interpreter's. Raises what a held launch failed with.
void settle_held();

}  // namespace ocl

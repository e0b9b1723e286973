// Launches that are held back until the next command of any device, so that they can run as one
// with the launches that follow them (ocl_backend/fusion/held.py). docs/fusion.md shows the whole.
#pragma once

#include "runtime/launch.h"
#include "runtime/observer.h"

namespace ocl {

// Enqueues what is held back, if anything is. To be called before any command is enqueued, without
// a lock: it may take the interpreter's. Raises what a held launch failed with.
void settle_held();

// Whether anything may be held back.
bool holds_back();

// Whether what is held back is a loose chain, which a call of other memory may join.
bool holds_loosely();

// Tells the chain and the recipes what the runtime does.
Observer& fusion_observer();

// Enqueues what was prepared behind what is held, or holds it back as well. Returns a `Status`.
int enqueue(const Handle& prepared, const int64_t* words);

}  // namespace ocl

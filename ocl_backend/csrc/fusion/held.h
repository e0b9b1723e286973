// Launches that are held back until the next command of any device, so that they can run as one
// with the launches that follow them (ocl_backend/fusion/held.py). docs/fusion.md shows the whole.
#pragma once

#include "runtime/launch.h"
#include "runtime/observer.h"

namespace ocl {

// Enqueues the held launches, if there are any. To be called before any command is enqueued, and
// without a lock, because it may take the interpreter's. Raises the error of a held launch.
void settle_held();

// Whether anything may be held back.
bool holds_back();

// Whether the held launches are a loose chain, which a call on other memory may join.
bool holds_loosely();

// Tells the chain and the recipes what the runtime does.
Observer& fusion_observer();

// Enqueues a prepared launch after the held ones, or holds it back as well. Returns a `Status`.
int enqueue(const Handle& prepared, const int64_t* words);

}  // namespace ocl

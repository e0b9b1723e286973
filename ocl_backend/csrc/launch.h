// Launches that were prepared, and how they fail: launch.cpp makes them, sequence.cpp runs several.
#pragma once

#include "memory.h"

namespace ocl {

enum Status : int { kOk = 0, kFailed = 1, kOutOfMemory = 2, kRefused = 3 };

struct Launch;

// Enqueues a launch with one word per changing argument; returns a `Status`.
int run(Launch& launch, const int64_t* words);

// Notes what `ocl_last_error` says of the failure; returns `status`.
int fail(int status, const std::string& text);

}  // namespace ocl

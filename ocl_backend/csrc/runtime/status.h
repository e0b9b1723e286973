// How a call that Python made by ctypes says whether it succeeded, and how torch hears of a
// failure.
#pragma once

#include <string>

namespace ocl {

enum Status : int { kOk = 0, kFailed = 1, kOutOfMemory = 2, kRefused = 3, kInterrupted = 4 };
// Added to a status if Python has the exception.
constexpr int kPython = 16;

// Notes the text of a failure; returns `status`.
int fail(int status, const std::string& text);
// Within a handler: notes the exception; returns its status.
int fail_with_exception();
const std::string& last_error();
// Raises the last failure, as what its status stands for; an interrupt also interrupts Python,
// for what torch makes of an exception of C++ is none.
[[noreturn]] void raise(int status);

}  // namespace ocl

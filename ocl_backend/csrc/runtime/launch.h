// What is prepared to be enqueued again and again: launches (launch.cpp) and sequences of them
// (sequence.cpp). A call passes only what changes, a word each: an address, an integer or a number.
#pragma once

#include <memory>
#include <vector>

#include "runtime/memory.h"

namespace ocl {

enum Status : int { kOk = 0, kFailed = 1, kOutOfMemory = 2, kRefused = 3 };
// Added to a status if Python has the exception.
constexpr int kPython = 16;

class Prepared {
 public:
  virtual ~Prepared() = default;
  // Enqueues with a word for each of `is_address`; returns a `Status`.
  virtual int enqueue(const int64_t* words) = 0;

  std::vector<bool> is_address;
  bool may_be_held = false;
};

// What Python has in its hands: operators that are recalled keep it alive, too.
using Handle = std::shared_ptr<Prepared>;

// Notes the text of a failure; returns `status`.
int fail(int status, const std::string& text);
// Within a handler: notes the exception; returns its status.
int fail_with_exception();
const std::string& last_error();
// Raises the last failure, as what its status stands for.
[[noreturn]] void raise(int status);

// A copy of a name that outlives what it names: a failure may be reported long after.
const char* keep_name(const char* name);

}  // namespace ocl

// What is prepared to be enqueued again and again: launches (launch.cpp) and sequences of them
// (sequence.cpp). A call passes only what changes, a word each: an address, an integer or a number.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>

#include "runtime/memory.h"
#include "runtime/status.h"

namespace ocl {

class Prepared : public std::enable_shared_from_this<Prepared> {
 public:
  Prepared() = default;
  virtual ~Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  // Enqueues with a word for each of `is_address`, or defers that (deferred.h); returns a `Status`.
  virtual int enqueue(const int64_t* words) = 0;
  // Enqueues what was deferred with these words, and waits for programs; returns a `Status`.
  virtual int run(const int64_t* words) { return enqueue(words); }
  // Says what is wrong with words that are to be deferred; returns a `Status`.
  virtual int check(const int64_t* /*words*/) { return kOk; }
  // Gives the driver one command, with its words resolved (submitter.h); returns a `Status`. Takes
  // neither the interpreter's lock nor the allocator's.
  virtual int submit(const int64_t* /*resolved*/) { return kOk; }
  // Whether all of its programs are built.
  virtual bool is_ready() const { return true; }
  // The same command with a kernel of its own, which graphs enqueue (graph.h). Raises if the driver
  // refuses.
  virtual std::shared_ptr<Prepared> apart() { return shared_from_this(); }
  // What listings call it.
  virtual const char* label() const { return "commands"; }
  // The number of its program, by which Python waits for it; 0: it is built, or there is none.
  virtual int64_t awaited() const { return 0; }

  c10::SmallVector<bool, 8> is_address;
  bool may_be_held = false;
};

// What Python has in its hands: operators that are recalled keep it alive, too.
using Handle = std::shared_ptr<Prepared>;

// A copy of a name that outlives what it names: a failure may be reported long after.
const char* keep_name(const char* name);

}  // namespace ocl

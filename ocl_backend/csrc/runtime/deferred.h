// Commands that wait for programs: a launch whose program is being built, and all that is enqueued
// behind it on the same device. They keep their order, so what holds of an in-order queue holds of
// them: memory that is freed behind a command may be handed to a later one.
//
// What needs a value, or the queue itself, waits until none is left: copies to the host, events,
// profilers, buffers given back to the driver.
#pragma once

#include "runtime/launch.h"

namespace ocl {

// Whether commands of the device wait, so that this thread's next one has to wait behind them.
bool has_deferred(c10::DeviceIndex device);
// Whether a command has to wait behind others of its device, or for its own programs. One that a
// graph records does not: its thread waits for the programs.
bool has_to_wait(c10::DeviceIndex device, const Prepared& command);
// Puts a command behind those that wait; returns a `Status`.
int defer(c10::DeviceIndex device, Prepared& command, const int64_t* words, size_t count);
// Waits for programs and enqueues all that waits for them. One that fails is left out, and is what
// this returns; the rest waits on. Returns a `Status`.
int enqueue_deferred(c10::DeviceIndex device);
// The same; raises what failed.
void wait_for_programs(c10::DeviceIndex device);
// Whether this thread enqueues what was deferred: what it calls meanwhile goes before the rest.
bool is_enqueueing_deferred();
// Lets Python wait for the program with a number; returns a `Status`.
int complete(int64_t number);
// The status of a wait that Python did not end, as a second interrupt may have it.
int fail_unfinished();

// While one exists, what this thread defers is told as this operator's.
class Named {
 public:
  explicit Named(const char* name);
  ~Named();
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

 private:
  const char* before_;
};

}  // namespace ocl

// What the runtime tells the layers above it. The allocator and the queues know no fusion and no
// recall: those observe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ocl {

class Prepared;

class Observer {
 public:
  virtual ~Observer() = default;
  // A command is about to be enqueued: launches that are held back have to run first. Called
  // without a lock, since Python may run; raises what a held launch failed with.
  virtual void before_command() {}
  // The same of a command that a recipe repeats with other words.
  virtual void before_repeatable(const std::shared_ptr<Prepared>& /*command*/,
                                 const int64_t* /*words*/) {}
  // There is no memory left: commands that wait should be enqueued, since theirs is free then.
  virtual void short_of_memory(int /*device*/) {}
  // This thread does what no recipe repeats: it copies to the host, or waits.
  virtual void unrepeatable() {}
  // This thread allocated memory of a device.
  virtual void allocated(const void* /*address*/, size_t /*bytes*/) {}
};

// The one that is told; until `observe` one that ignores all.
Observer& observer();
// Lives as long as the process.
void observe(Observer& by);

}  // namespace ocl

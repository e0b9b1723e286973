// A thread of a device that hands commands to the driver, so that the thread which runs the model
// goes on. A driver takes 4 to 6 microseconds for a launch, and two to four times as long where
// the model's thread has overwritten the processor's caches in between. This thread keeps its own.
//
//     Prepared::enqueue -> hand_over -> ring of commands -> Prepared::submit in the thread
//
// Where a processor's only core runs the model and the kernels, there is no such thread: calls fill
// the ring, and one of them submits the whole batch. A command that finds the threads of the
// driver asleep wakes them, and they take the core from the caller; of a batch only one does.
//
// Commands keep their order. Whatever else uses a device's queue takes it from `queue_of`, which
// waits until the driver has all commands that were handed over before. A command goes through the
// thread only if the driver has accepted it once: a launch that the driver refuses is an error of
// its own call.
//
// `Prepared::submit` takes neither the interpreter's lock nor the allocator's, so a thread that
// waits for this one may hold them.
#pragma once

#include <c10/util/SmallVector.h>

#include "runtime/launch.h"

namespace ocl {

// A command's words as the driver takes them: a buffer is its handle and an offset, a number its
// bits. `blocks` is the memory of the buffers, with whether the command writes to it.
struct Resolved {
  c10::SmallVector<int64_t, 24> words;
  c10::SmallVector<Block*, 12> blocks;
  c10::SmallVector<bool, 12> is_written;

  // Counts a command that writes.
  void add(const Location& place, int64_t offset, bool writes);
};

inline int64_t word_of(cl_mem buffer) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(buffer));
}
inline cl_mem buffer_of(int64_t word) {
  return reinterpret_cast<cl_mem>(static_cast<intptr_t>(word));
}

// Hands a command over: to the device's thread or batch if there is one, no profiler listens and
// the command `may_be_late`; else to the driver. While this thread captures a graph, that records
// it. Returns a `Status`, also of an earlier command that failed in the thread; then this command
// is dropped.
int hand_over(c10::DeviceIndex device, Prepared& command, const Resolved& resolved,
              bool may_be_late);
// Waits until the driver has all commands of the ring; returns a `Status` as above.
int drain(c10::DeviceIndex device);
// Waits in the same way, and leaves the failure to the next call.
void await_submission(c10::DeviceIndex device);
// Whether the driver has the command of a `Block::ticket`.
bool is_submitted(c10::DeviceIndex device, uint64_t ticket);
// The queue of a device, after all commands of its thread. Raises the failure of one of them, and
// while this thread captures a graph: what needs the queue cannot be recorded.
cl_command_queue queue_of(c10::DeviceIndex device);

}  // namespace ocl

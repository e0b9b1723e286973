#include "runtime/deferred.h"

#include <c10/util/ScopeExit.h>

#include <array>
#include <deque>

#include "runtime/graph.h"
#include "runtime/interpreter.h"
#include "runtime/profile.h"

namespace ocl {

namespace {

// With this many commands the host waits: a loop that asks for no value would go on for ever.
constexpr size_t kMostDeferred = 4096;

struct Deferred {
  std::shared_ptr<Prepared> command;
  std::vector<int64_t> words;
  std::vector<Block*> blocks;  // that the words lie in
  const char* name;            // the operator's, or null
};

struct Waiting {
  std::atomic<size_t> count{0};   // of `commands`; one that is being enqueued counts
  std::mutex mutex;               // guards `commands`, briefly
  std::deque<Deferred> commands;
  std::recursive_mutex turn;      // whose thread enqueues them
};

// Leaked on purpose: launches may wait at exit, when the runtime has ended.
Waiting& waiting_of(c10::DeviceIndex device) {
  static auto* all = new std::array<Waiting, kMostDevices>();
  return all->at(size_t(device));
}

thread_local bool is_enqueueing = false;  // this thread has its turn: its commands go at once
std::atomic<int> enqueueing{0};           // threads of which that is true, at the moment
thread_local const char* current_name = nullptr;
void (*complete_in_python)(int64_t number, int* status) = nullptr;

// Enqueues the first command; returns a `Status`. It stays in its place until it is in the queue,
// so that no command passes it, and if the wait for its program was interrupted.
int enqueue_first(Waiting& waiting, Deferred& first) {
  int status = kFailed;
  {
    is_enqueueing = true;
    ++enqueueing;
    const auto end = c10::make_scope_exit([] {
      is_enqueueing = false;
      --enqueueing;
    });
    const FreshMemory fresh;
    const Within no_graph(nullptr);  // it was called before the capture that this thread is in
    status = first.command->run(first.words.data());
  }
  if (status % kPython == kInterrupted) return status;
  if (status && first.name)
    fail(status, last_error() + "\n" + first.name + " waited for its program until now");
  for (Block* block : first.blocks) stop_waiting(block);
  Deferred done;
  const std::lock_guard<std::mutex> lock(waiting.mutex);
  done = std::move(first);  // its destructor runs behind the lock
  waiting.commands.pop_front();
  waiting.count.store(waiting.commands.size(), std::memory_order_release);
  return status;
}

}  // namespace

bool has_deferred(c10::DeviceIndex device) {
  return waiting_of(device).count.load(std::memory_order_acquire) > 0 && !is_enqueueing &&
         !graph_here(device);
}

bool has_to_wait(c10::DeviceIndex device, const Prepared& command) {
  return has_deferred(device) || (!command.is_ready() && !is_enqueueing && !graph_here(device));
}

bool is_enqueueing_deferred() {
  return enqueueing.load(std::memory_order_relaxed) > 0 && is_enqueueing;
}

int defer(c10::DeviceIndex device, Prepared& command, const int64_t* words, size_t count) {
  if (const int status = command.check(words)) return status;
  Deferred deferred{command.shared_from_this(), {words, words + count}, {}, current_name};
  for (const int64_t word : deferred.words) {
    // a number that looks like an address keeps a block from the driver for a while, no more
    if (Block* block = start_waiting(reinterpret_cast<const void*>(word)))
      deferred.blocks.push_back(block);
  }
  Waiting& waiting = waiting_of(device);
  size_t length = 0;
  {
    const std::lock_guard<std::mutex> lock(waiting.mutex);
    waiting.commands.push_back(std::move(deferred));
    length = waiting.commands.size();
    waiting.count.store(length, std::memory_order_release);
  }
  // a profiler asks for the times of commands, which they have once they are enqueued
  return is_listened_to() || length >= kMostDeferred ? enqueue_deferred(device) : kOk;
}

int enqueue_deferred(c10::DeviceIndex device) {
  Waiting& waiting = waiting_of(device);
  if (is_enqueueing || in_forked_child()) return kOk;
  if (!waiting.count.load(std::memory_order_acquire)) return kOk;
  const PatientLock turn(waiting.turn);
  while (true) {
    Deferred* first = nullptr;
    {
      const std::lock_guard<std::mutex> lock(waiting.mutex);
      if (waiting.commands.empty()) return kOk;
      first = &waiting.commands.front();  // a deque's items stay where they are
    }
    if (const int status = enqueue_first(waiting, *first)) return status;
  }
}

namespace {

void drop_deferred(c10::DeviceIndex device) {
  Waiting& waiting = waiting_of(device);
  const PatientLock turn(waiting.turn);
  std::deque<Deferred> dropped;
  {
    const std::lock_guard<std::mutex> lock(waiting.mutex);
    dropped.swap(waiting.commands);
    waiting.count.store(0, std::memory_order_release);
  }
  for (const Deferred& command : dropped)
    for (Block* block : command.blocks) stop_waiting(block);
}

}  // namespace

void wait_for_programs(c10::DeviceIndex device) {
  if (const int status = enqueue_deferred(device)) raise(status);
}

int complete(int64_t number) {
  int status = kInterrupted;  // if an exception leaves it
  complete_in_python(number, &status);
  if (status == kInterrupted) return fail_unfinished();
  return status ? fail(status, python_error()) : kOk;
}

int fail_unfinished() { return fail(kInterrupted, "the wait for a program was interrupted"); }

Named::Named(const char* name) : before_(current_name) { current_name = name; }
Named::~Named() { current_name = before_; }

}  // namespace ocl

extern "C" {

// What waits for a program of a number, in Python, and makes its launch ready, telling a `Status`.
void ocl_complete_with(void (*complete)(int64_t, int*)) { ocl::complete_in_python = complete; }

// Forgets what waits: the process ends.
void ocl_drop_deferred() {
  for (int device = 0; device < ocl::device_count(); ++device)
    ocl::drop_deferred(c10::DeviceIndex(device));
}

// Enqueues what waits for programs. Returns a `Status`.
int ocl_wait_for_programs(int device) { return ocl::enqueue_deferred(c10::DeviceIndex(device)); }
}

#include "runtime/submitter.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/graph.h"
#include "runtime/interpreter.h"
#include "runtime/profile.h"

namespace ocl {

namespace {

using Clock = std::chrono::steady_clock;

// As many launches as CUDA lets wait in a stream before the next one blocks.
constexpr uint64_t kRoom = 1024;
// The thread looks for commands this long before it sleeps: waking it costs the caller a system
// call, and a model in Python enqueues every 10 to 50 microseconds.
constexpr auto kAwake = std::chrono::microseconds(200);
// A thread that waits longer than this for the driver sleeps in between: its queue is full.
constexpr auto kBusyWait = std::chrono::milliseconds(1);
constexpr auto kNap = std::chrono::microseconds(50);
constexpr int kLooks = 64;  // between two looks at the clock
// Commands of a batch: a model in Python enqueues them in about a millisecond.
constexpr uint64_t kBatch = 32;

// Who hands commands to the driver: `Submission` of memory.py.
enum How : int { kEachCall = 0, kThread = 1, kBatches = 2 };

struct Command {
  Handle command;
  c10::SmallVector<int64_t, 24> words;
};

class Submitter {
 public:
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void turn(c10::DeviceIndex device, How how);
  int push(c10::DeviceIndex device, Prepared& command, const Resolved& resolved);
  void await_all(c10::DeviceIndex device) {
    wait_for(pushed_.load(std::memory_order_acquire), device);
  }
  int drain(c10::DeviceIndex device) {
    await_all(device);
    return take_failure();
  }
  bool has(uint64_t ticket) const { return done_.load(std::memory_order_acquire) >= ticket; }
  void stop(c10::DeviceIndex device);

 private:
  bool try_push(Prepared& command, const Resolved& resolved);
  void wait_for(uint64_t ticket, c10::DeviceIndex device);
  void end_thread();
  void retry(c10::DeviceIndex device);
  bool submit_batch(c10::DeviceIndex device);
  int take_failure();
  void note(int status);
  void pop(uint64_t at);
  void run();
  bool await(uint64_t at);
  void wake();

  std::vector<Command> ring_;  // `kRoom` of them from the first `turn` on: 0.25 MB
  std::atomic<uint64_t> pushed_{0}, done_{0};  // commands so far; `pushed_` is also a ticket
  std::mutex pushing_;                          // of the threads that push
  std::thread thread_;                          // guarded by `pushing_`
  // whether the driver lacks it for the command at `done_`: a thread that waits makes room
  std::atomic<bool> lacks_memory_{false};
  std::recursive_mutex retrying_;  // held by that thread, and by one that submits a batch
  bool is_submitting_ = false;     // a batch; guarded by `retrying_`
  std::atomic<bool> is_on_{false}, has_thread_{false}, is_leaving_{false};
  std::atomic<bool> is_asleep_{false}, is_over_{false};
  std::mutex sleeping_;
  std::condition_variable awake_;
  std::atomic<bool> has_failed_{false};
  std::mutex failing_;  // guards the failure
  int failed_ = kOk;
  std::string reason_;
};

// Leaked on purpose: tensors are copied after static destructors have run.
Submitter& submitter_of(c10::DeviceIndex device) {
  static auto* all = new std::array<Submitter, kMostDevices>();
  return all->at(size_t(device));
}

// Lets the core's other hardware thread run while this one polls.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Starts the thread or ends it. Where the system has none left, calls submit by themselves.
void Submitter::turn(c10::DeviceIndex device, How how) try {
  await_all(device);
  const PatientLock no_batch(retrying_);
  const std::lock_guard<std::mutex> lock(pushing_);
  if (how && !is_over_) ring_.resize(kRoom);
  if (how != kThread) {
    end_thread();
  } else if (!has_thread_ && !is_over_) {
    thread_ = std::thread([this] { run(); });
    has_thread_ = true;
  }
  is_on_ = how && !is_over_;
} catch (const std::system_error&) {
  is_on_ = false;
}

// Commands that it leaves because the driver lacks memory are submitted by the next thread that
// waits.
void Submitter::end_thread() {
  is_leaving_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  is_leaving_ = has_thread_ = lacks_memory_ = false;
}

bool Submitter::try_push(Prepared& command, const Resolved& resolved) {
  const std::lock_guard<std::mutex> lock(pushing_);
  const uint64_t at = pushed_.load(std::memory_order_relaxed);
  if (at - done_.load(std::memory_order_acquire) >= kRoom) return false;
  Command& entry = ring_[at % kRoom];
  entry.command = command.shared_from_this();
  entry.words.assign(resolved.words.begin(), resolved.words.end());
  for (Block* block : resolved.blocks) block->ticket.store(at + 1, std::memory_order_relaxed);
  pushed_.store(at + 1);
  return true;
}

int Submitter::push(c10::DeviceIndex device, Prepared& command, const Resolved& resolved) {
  if (const int status = take_failure()) return status;
  while (!try_push(command, resolved))
    wait_for(pushed_.load(std::memory_order_acquire) - kRoom + 1, device);
  if (!has_thread_) {
    if (pushed_.load() - done_.load() >= kBatch) submit_batch(device);
  } else if (is_asleep_.load()) {
    wake();
  }
  return kOk;
}

void Submitter::wait_for(uint64_t ticket, c10::DeviceIndex device) {
  if (has(ticket)) return;
  const auto begin = Clock::now();
  for (int looks = 1; !has(ticket) && !is_over_; ++looks) {
    if (!has_thread_ && submit_batch(device)) return;
    if (lacks_memory_.load(std::memory_order_acquire)) retry(device);
    relax();
    if (looks % kLooks == 0 && Clock::now() - begin > kBusyWait) std::this_thread::sleep_for(kNap);
  }
}

// Empties the device's cache, which may call Python, and submits the command at `done_` again.
void Submitter::retry(c10::DeviceIndex device) {
  const PatientLock lock(retrying_);
  if (!lacks_memory_.load(std::memory_order_acquire)) return;  // another thread did
  empty_cache(device);
  const uint64_t at = done_.load(std::memory_order_acquire);
  Command& entry = ring_[at % kRoom];
  note(entry.command->submit(entry.words.data()));
  lacks_memory_ = false;
  pop(at);
}

// Submits what waits in the ring, in the calling thread; not if a thread of its own began to.
bool Submitter::submit_batch(c10::DeviceIndex device) {
  const PatientLock lock(retrying_);
  if (has_thread_) return false;
  if (std::exchange(is_submitting_, true)) return true;  // an emptied cache called Python
  for (uint64_t at = done_.load(); at < pushed_.load(std::memory_order_acquire); ++at) {
    Command& entry = ring_[at % kRoom];
    int status = entry.command->submit(entry.words.data());
    if (status == kOutOfMemory) {
      empty_cache(device);
      status = entry.command->submit(entry.words.data());
    }
    note(status);
    pop(at);
  }
  is_submitting_ = false;
  return true;
}

int Submitter::take_failure() {
  if (!has_failed_.load(std::memory_order_acquire)) return kOk;
  const std::lock_guard<std::mutex> lock(failing_);
  has_failed_ = false;
  return fail(std::exchange(failed_, kOk), reason_);
}

// Keeps the first of the failures that no call has reported yet.
void Submitter::note(int status) {
  if (!status) return;
  const std::lock_guard<std::mutex> lock(failing_);
  if (has_failed_) return;
  failed_ = status;
  reason_ = last_error();
  has_failed_ = true;
}

void Submitter::pop(uint64_t at) {
  ring_[at % kRoom].command.reset();
  done_.store(at + 1, std::memory_order_release);
}

void Submitter::run() {
  for (uint64_t at = done_.load(); await(at); ++at) {
    Command& entry = ring_[at % kRoom];
    const int status = entry.command->submit(entry.words.data());
    if (status != kOutOfMemory) {
      note(status);
      pop(at);
      continue;
    }
    lacks_memory_ = true;
    while (!has(at + 1)) {
      if (is_over_ || is_leaving_) return;
      std::this_thread::sleep_for(kNap);
    }
  }
}

// Waits for the command at a place; returns whether there is one.
bool Submitter::await(uint64_t at) {
  const auto is_there = [&] { return pushed_.load() > at || is_over_ || is_leaving_; };
  const auto begin = Clock::now();
  for (int looks = 1; !is_there(); ++looks) {
    relax();
    if (looks % kLooks || Clock::now() - begin < kAwake) continue;
    std::unique_lock<std::mutex> lock(sleeping_);
    is_asleep_ = true;  // before `pushed_` is read again: `push` writes `pushed_`, then reads this
    awake_.wait(lock, is_there);
    is_asleep_ = false;
  }
  return pushed_.load() > at;
}

void Submitter::wake() {
  const std::lock_guard<std::mutex> lock(sleeping_);
  awake_.notify_one();
}

void Submitter::stop(c10::DeviceIndex device) {
  await_all(device);
  is_on_ = false;
  is_over_ = true;
  end_thread();
}

}  // namespace

void Resolved::add(const Location& place, int64_t offset, bool writes) {
  words.append({word_of(place.block->buffer), offset});
  blocks.push_back(place.block);
  is_written.push_back(writes);
  if (writes) ++place.block->writes;
}

int hand_over(c10::DeviceIndex device, Prepared& command, const Resolved& resolved,
              bool may_be_late) {
  if (const auto graph = graph_here(device)) return graph->record(command, resolved);
  Submitter& submitter = submitter_of(device);
  if (may_be_late && submitter.is_on() && !is_listened_to())
    return submitter.push(device, command, resolved);
  if (const int status = submitter.drain(device)) return status;
  const int status = command.submit(resolved.words.data());
  if (status != kOutOfMemory) return status;
  // a driver that allocates at first use ran out of memory: make room, which may call Python
  empty_cache(device);
  return command.submit(resolved.words.data());
}

int drain(c10::DeviceIndex device) { return submitter_of(device).drain(device); }

void await_submission(c10::DeviceIndex device) { submitter_of(device).await_all(device); }

bool is_submitted(c10::DeviceIndex device, uint64_t ticket) {
  return submitter_of(device).has(ticket);
}

cl_command_queue queue_of(c10::DeviceIndex device) {
  if (const auto graph = graph_here(device))
    raise(graph->refuse(
        "a graph cannot contain a call that waits for the device, or that reads the host's memory "
        "later: item(), a copy to the host, synchronize(), a copy of pinned memory, or one of more "
        "than 256 KiB from the host. Do that before the capture, into tensors that the graph "
        "reads, "
        "or behind the replay"));
  if (const int status = drain(device)) raise(status);
  return device_at(device).queue;
}

}  // namespace ocl

extern "C" {

// Who hands the device's commands to its driver from now on: a `How`.
void ocl_set_submitter(int device, int how) {
  const auto index = c10::DeviceIndex(device);
  ocl::submitter_of(index).turn(index, ocl::How(how));
}

// Ends the threads after the commands that they have: the process ends.
void ocl_stop_submitters() {
  for (int device = 0; device < ocl::device_count(); ++device) {
    const auto index = c10::DeviceIndex(device);
    ocl::submitter_of(index).stop(index);
  }
}
}

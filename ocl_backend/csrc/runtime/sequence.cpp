// Launches that run one behind the other, and the workspaces that they share: one call from Python.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/deferred.h"

namespace ocl {

namespace {

// A launch, and the place of each of its words among a sequence's.
struct Part {
  Handle launch;
  std::vector<uint32_t> places;
};

// Its words are those of the caller, then fixed ones, then the addresses of its workspaces.
struct Sequence final : Prepared {
  ~Sequence() override {
    for (Block* block : kept) let_go_block(block);
  }
  int enqueue(const int64_t* given) override;
  int run(const int64_t* words) override;
  int check(const int64_t* words) override;
  bool is_ready() const override;
  Handle other() const;
  void take(const Part& part, const int64_t* words, c10::SmallVector<int64_t, 24>& taken) const;

  mutable std::mutex mutex;  // guards `replacement`
  Handle replacement;  // runs instead: a program of this one cannot be built
  int64_t number = 0;  // by which Python completes it as a whole; 0: launch by launch
  c10::DeviceIndex device;
  std::vector<int64_t> fixed;
  std::vector<Block*> kept;  // where fixed words are addresses
  std::vector<size_t> workspaces;  // bytes
  std::vector<Part> parts;
  std::atomic<int64_t> runs{0};  // that were enqueued whole, by Python or by what is recalled
};

// The workspaces return to the allocator as soon as everything is enqueued: queues are in order.
int Sequence::enqueue(const int64_t* given) try {
  if (const Handle instead = other()) return instead->enqueue(given);
  c10::SmallVector<int64_t, 24> words(given, given + is_address.size());
  words.append(fixed.begin(), fixed.end());
  c10::SmallVector<c10::DataPtr, 4> spaces;
  for (const size_t bytes : workspaces) {
    spaces.push_back(allocate(device, bytes));
    words.push_back(reinterpret_cast<int64_t>(spaces.back().get()));
  }
  // as one: if a program cannot be built, another sequence takes the place of the whole
  const int status = has_to_wait(device, *this) ? defer(device, *this, words.data(), words.size())
                                                : run(words.data());
  if (status == kOk) runs.fetch_add(1, std::memory_order_relaxed);
  return status;
} catch (...) {
  return fail_with_exception();
}

Handle Sequence::other() const {
  const std::lock_guard<std::mutex> lock(mutex);
  return replacement;
}

void Sequence::take(const Part& part, const int64_t* words,
                    c10::SmallVector<int64_t, 24>& taken) const {
  taken.clear();
  for (const uint32_t place : part.places) taken.push_back(words[place]);
}

bool Sequence::is_ready() const {
  return std::all_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.launch->is_ready(); });
}

int Sequence::check(const int64_t* words) {
  c10::SmallVector<int64_t, 24> taken;
  for (const auto& part : parts) {
    take(part, words, taken);
    if (const int status = part.launch->check(taken.data())) return status;
  }
  return kOk;
}

// All programs are built before the first launch, which may overwrite what it reads.
int Sequence::run(const int64_t* words) {
  for (const auto& part : parts) {
    const int64_t awaited = part.launch->awaited();
    if (!awaited) continue;
    if (const int status = complete(number ? number : awaited)) return status;
    if (const Handle instead = other()) return instead->enqueue(words);
  }
  c10::SmallVector<int64_t, 24> taken;
  for (const auto& part : parts) {
    take(part, words, taken);
    if (const int status = part.launch->enqueue(taken.data())) return status;
  }
  return kOk;
}

}  // namespace

}  // namespace ocl

extern "C" {

// Arrays, each behind its length; `lengths` and `places` say for each launch how many words it
// takes and which.
void* ocl_sequence_new(int device, uint32_t given, uint32_t fixed, const int64_t* words,
                       uint32_t workspaces, const size_t* bytes, uint32_t launches,
                       void* const* handles, const uint32_t* lengths, const uint32_t* places) {
  const auto sequence = std::make_shared<ocl::Sequence>();
  sequence->device = c10::DeviceIndex(device);
  sequence->fixed.assign(words, words + fixed);
  sequence->workspaces.assign(bytes, bytes + workspaces);
  sequence->is_address.resize(given);
  for (uint32_t i = 0; i < launches; places += lengths[i++]) {
    const auto& launch = *static_cast<ocl::Handle*>(handles[i]);
    sequence->parts.push_back({launch, {places, places + lengths[i]}});
    for (uint32_t j = 0; j < lengths[i]; ++j)
      if (places[j] < given && launch->is_address[j]) sequence->is_address[places[j]] = true;
  }
  for (const int64_t word : sequence->fixed) {
    auto* block = ocl::hold_block(reinterpret_cast<const void*>(word), sequence->device);
    if (block) sequence->kept.push_back(block);
  }
  return new ocl::Handle(sequence);
}

// How often a sequence was enqueued.
int64_t ocl_sequence_runs(void* sequence) {
  const auto& handle = *static_cast<ocl::Handle*>(sequence);
  return static_cast<const ocl::Sequence&>(*handle).runs.load(std::memory_order_relaxed);
}

// Lets Python complete the sequence as a whole, by a number of its own. Before its first call.
void ocl_sequence_await(void* sequence, int64_t number) {
  static_cast<ocl::Sequence&>(**static_cast<ocl::Handle*>(sequence)).number = number;
}

// Lets another sequence, which takes the same words from the caller, run from now on.
void ocl_sequence_replace(void* sequence, void* by) {
  auto& replaced = static_cast<ocl::Sequence&>(**static_cast<ocl::Handle*>(sequence));
  const std::lock_guard<std::mutex> lock(replaced.mutex);
  replaced.replacement = *static_cast<ocl::Handle*>(by);
}
}

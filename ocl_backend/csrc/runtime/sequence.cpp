// Launches that run one behind the other, and the workspaces that they share: one call from Python.
#include <atomic>
#include <vector>

#include "runtime/launch.h"

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

  c10::DeviceIndex device;
  std::vector<int64_t> fixed;
  std::vector<Block*> kept;  // where fixed words are addresses
  std::vector<size_t> workspaces;  // bytes
  std::vector<Part> parts;
  std::atomic<int64_t> runs{0};  // that were enqueued whole, by Python or by what is recalled
};

// The workspaces return to the allocator as soon as everything is enqueued: queues are in order.
int Sequence::enqueue(const int64_t* given) try {
  c10::SmallVector<int64_t, 24> words(given, given + is_address.size());
  words.append(fixed.begin(), fixed.end());
  c10::SmallVector<c10::DataPtr, 4> spaces;
  for (const size_t bytes : workspaces) {
    spaces.push_back(allocate(device, bytes));
    words.push_back(reinterpret_cast<int64_t>(spaces.back().get()));
  }
  c10::SmallVector<int64_t, 24> taken;
  for (const auto& part : parts) {
    taken.clear();
    for (const uint32_t place : part.places) taken.push_back(words[place]);
    if (const int status = part.launch->enqueue(taken.data())) return status;
  }
  runs.fetch_add(1, std::memory_order_relaxed);
  return kOk;
} catch (...) {
  return fail_with_exception();
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
}

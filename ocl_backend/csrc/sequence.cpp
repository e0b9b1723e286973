// Launches that run one behind the other, and the workspaces that they share: one call from Python.
#include <vector>

#include "launch.h"

namespace ocl {

namespace {

// A launch, and the place of each of its words among a sequence's.
struct Part {
  Launch* launch;
  std::vector<uint32_t> places;
};

// Its words are those of the caller, then fixed ones, then the addresses of its workspaces.
struct Sequence {
  c10::DeviceIndex device;
  size_t given;
  std::vector<int64_t> fixed;
  std::vector<size_t> workspaces;  // bytes
  std::vector<Part> parts;
};

// The workspaces return to the allocator as soon as everything is enqueued: queues are in order.
int run_all(const Sequence& sequence, const int64_t* given) {
  c10::SmallVector<int64_t, 24> words(given, given + sequence.given);
  words.append(sequence.fixed.begin(), sequence.fixed.end());
  c10::SmallVector<c10::DataPtr, 4> workspaces;
  for (const size_t bytes : sequence.workspaces) {
    workspaces.push_back(allocate(sequence.device, bytes));
    words.push_back(reinterpret_cast<int64_t>(workspaces.back().get()));
  }
  c10::SmallVector<int64_t, 24> taken;
  for (const auto& part : sequence.parts) {
    taken.clear();
    for (const uint32_t place : part.places) taken.push_back(words[place]);
    if (const int status = run(*part.launch, taken.data())) return status;
  }
  return kOk;
}

}  // namespace

}  // namespace ocl

extern "C" {

// Arrays, each behind its length; `lengths` and `places` say for each launch how many words it takes
// and which. The launches must outlive the result.
void* ocl_sequence_new(int device, uint32_t given, uint32_t fixed, const int64_t* words,
                       uint32_t workspaces, const size_t* bytes, uint32_t launches,
                       void* const* handles, const uint32_t* lengths, const uint32_t* places) {
  auto* sequence = new ocl::Sequence{
      c10::DeviceIndex(device), given, {words, words + fixed}, {bytes, bytes + workspaces}, {}};
  for (uint32_t i = 0; i < launches; places += lengths[i++])
    sequence->parts.push_back(
        {static_cast<ocl::Launch*>(handles[i]), {places, places + lengths[i]}});
  return sequence;
}

void ocl_sequence_delete(void* sequence) { delete static_cast<ocl::Sequence*>(sequence); }

// Takes the words given, as `ocl_launch` does. Returns a `Status`.
int ocl_sequence(void* sequence, const int64_t* words) try {
  return ocl::run_all(*static_cast<ocl::Sequence*>(sequence), words);
} catch (const c10::OutOfMemoryError& error) {
  return ocl::fail(ocl::kOutOfMemory, error.what_without_backtrace());
} catch (const std::exception& error) {
  return ocl::fail(ocl::kFailed, error.what());
}
}

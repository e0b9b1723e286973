// Launches that run one behind the other, and the workspaces that they share: one call from Python.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/deferred.h"
#include "runtime/graph.h"
#include "runtime/kept.h"

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
    if (of_weights) forget_kept_by(this);
  }
  int enqueue(const int64_t* given) override;
  int run(const int64_t* words) override { return run_parts(0, parts.size(), words); }
  int run_parts(size_t first, size_t end, const int64_t* words);
  void tell_graph(Graph& graph, const Addresses& read, const Kept& known, const int64_t* words,
                  size_t count);
  int check(const int64_t* words) override;
  bool is_ready() const override;
  Handle other() const;
  void take(const Part& part, const int64_t* words, c10::SmallVector<int64_t, 24>& taken) const;
  void keep_made(const Addresses& of, const Counts& writes,
                 c10::SmallVector<c10::DataPtr, 4>& spaces) const;
  size_t made_bytes() const;
  Kept made_aside(Graph& graph, const Addresses& of, const int64_t* given);

  mutable std::mutex mutex;  // guards `replacement`
  Handle replacement;  // runs instead: a program of this one cannot be built
  Handle otherwise;  // runs instead of making what is not kept; null: it is made for each call
  int64_t number = 0;  // by which Python completes it as a whole; 0: launch by launch
  c10::DeviceIndex device;
  std::vector<int64_t> fixed;
  std::vector<Block*> kept;  // where fixed words are addresses
  std::vector<size_t> workspaces;  // bytes
  std::vector<Part> parts;
  size_t of_weights = 0;  // how many parts, the first ones, depend on weights alone
  std::vector<uint32_t> weights;  // the places of those among the words
  std::vector<bool> is_made;  // of each workspace: whether those parts fill it
  std::atomic<int64_t> runs{0};  // that were enqueued whole, by Python or by what is recalled
};

// The workspaces return to the allocator as soon as everything is enqueued: queues are in order.
int Sequence::enqueue(const int64_t* given) try {
  if (const Handle instead = other()) return instead->enqueue(given);
  c10::SmallVector<int64_t, 24> words(given, given + is_address.size());
  words.append(fixed.begin(), fixed.end());
  c10::SmallVector<c10::DataPtr, 4> spaces;
  const bool waits = has_to_wait(device, *this);
  const auto graph = graph_here(device);
  Addresses given_weights;
  Kept known;
  if (of_weights && !waits && keeps_weights()) {
    for (const uint32_t place : weights) given_weights.push_back(words[place]);
    known = graph ? read_kept(this, given_weights) : look_up_kept(this, given_weights);
    if (graph && otherwise && !known.spaces) known = made_aside(*graph, given_weights, given);
  }
  if (otherwise && !waits && !known.spaces &&
      (known.writes.empty() || !has_room_to_keep(device, made_bytes()))) {
    runs.fetch_add(1, std::memory_order_relaxed);
    return otherwise->enqueue(given);
  }
  for (size_t i = 0, made = 0; i < workspaces.size(); ++i) {
    const bool is_known = known.spaces && is_made[i];
    if (!is_known) spaces.push_back(allocate(device, workspaces[i]));
    const auto& space = is_known ? (*known.spaces)[made++] : spaces.back();
    words.push_back(reinterpret_cast<int64_t>(space.get()));
  }
  // as one: if a program cannot be built, another sequence takes the place of the whole
  const int status = waits ? defer(device, *this, words.data(), words.size())
                           : run_parts(known.spaces ? of_weights : 0, parts.size(), words.data());
  if (status != kOk) return status;
  runs.fetch_add(1, std::memory_order_relaxed);
  if (graph) {
    if (known.spaces) tell_graph(*graph, given_weights, known, words.data(), words.size());
    return status;
  }
  if (!known.writes.empty() && !known.spaces) keep_made(given_weights, known.writes, spaces);
  return status;
} catch (...) {
  return fail_with_exception();
}

// A graph reads what is kept, and makes it again in the same place when weights have changed.
void Sequence::tell_graph(Graph& graph, const Addresses& read, const Kept& known,
                          const int64_t* words, size_t count) {
  const Handle self = shared_from_this();
  graph.read_kept(read, known, [self, given = std::vector<int64_t>(words, words + count)] {
    auto& sequence = static_cast<Sequence&>(*self);
    return sequence.run_parts(0, sequence.of_weights, given.data());
  });
}

void Sequence::keep_made(const Addresses& of, const Counts& writes,
                         c10::SmallVector<c10::DataPtr, 4>& spaces) const {
  Spaces made;
  size_t bytes = 0;
  for (size_t i = 0; i < spaces.size(); ++i) {
    if (!is_made[i]) continue;
    bytes += workspaces[i];
    made.push_back(std::move(spaces[i]));
  }
  keep(this, of, writes, std::move(made), bytes);
}

size_t Sequence::made_bytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < workspaces.size(); ++i)
    if (is_made[i]) bytes += workspaces[i];
  return bytes;
}

// Makes what a graph is to read, and keeps it: its commands, which run at each replay, then leave
// that out. Returns nothing where the graph itself writes to the weights.
Kept Sequence::made_aside(Graph& graph, const Addresses& of, const int64_t* given) {
  if (graph.changes(of) || !has_room_to_keep(device, made_bytes())) return {};
  const Within aside(nullptr);
  look_up_kept(this, of);  // the first call only notes the weights
  Kept noted = look_up_kept(this, of);
  if (noted.spaces || noted.writes.empty()) return noted;
  c10::SmallVector<int64_t, 24> words(given, given + is_address.size());
  words.append(fixed.begin(), fixed.end());
  c10::SmallVector<c10::DataPtr, 4> spaces;
  for (const size_t bytes : workspaces) {
    spaces.push_back(allocate(device, bytes));
    words.push_back(reinterpret_cast<int64_t>(spaces.back().get()));
  }
  if (run_parts(0, of_weights, words.data())) return {};
  keep_made(of, noted.writes, spaces);
  return read_kept(this, of);
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
int Sequence::run_parts(size_t first, size_t end, const int64_t* words) {
  for (const auto& part : parts) {
    const int64_t awaited = part.launch->awaited();
    if (!awaited) continue;
    if (const int status = complete(number ? number : awaited)) return status;
    if (const Handle instead = other()) return instead->enqueue(words);
  }
  c10::SmallVector<int64_t, 24> taken;
  for (size_t i = first; i < end; ++i) {
    take(parts[i], words, taken);
    if (const int status = parts[i].launch->enqueue(taken.data())) return status;
  }
  return kOk;
}

}  // namespace

}  // namespace ocl

extern "C" {

// Arrays, each behind its length; `lengths` and `places` say for each launch how many words it
// takes and which. The first `of_weights` launches depend on weights alone.
void* ocl_sequence_new(int device, uint32_t given, uint32_t fixed, const int64_t* words,
                       uint32_t workspaces, const size_t* bytes, uint32_t launches,
                       void* const* handles, const uint32_t* lengths, const uint32_t* places,
                       uint32_t of_weights) {
  const auto sequence = std::make_shared<ocl::Sequence>();
  sequence->device = c10::DeviceIndex(device);
  sequence->fixed.assign(words, words + fixed);
  sequence->workspaces.assign(bytes, bytes + workspaces);
  sequence->is_address.resize(given);
  sequence->of_weights = of_weights;
  sequence->is_made.resize(workspaces);
  for (uint32_t i = 0; i < launches; places += lengths[i++]) {
    const auto& launch = *static_cast<ocl::Handle*>(handles[i]);
    sequence->parts.push_back({launch, {places, places + lengths[i]}});
    for (uint32_t j = 0; j < lengths[i]; ++j) {
      if (places[j] < given && launch->is_address[j]) sequence->is_address[places[j]] = true;
      if (i < of_weights && places[j] < given) sequence->weights.push_back(places[j]);
      if (i < of_weights && places[j] >= given + fixed)
        sequence->is_made[places[j] - given - fixed] = true;
    }
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

// Lets another sequence, which takes the same words from the caller, run wherever what this one
// makes of weights is not kept. Before its first call.
void ocl_sequence_otherwise(void* sequence, void* by) {
  auto& self = static_cast<ocl::Sequence&>(**static_cast<ocl::Handle*>(sequence));
  self.otherwise = *static_cast<ocl::Handle*>(by);
}

// Lets another sequence, which takes the same words from the caller, run from now on.
void ocl_sequence_replace(void* sequence, void* by) {
  auto& replaced = static_cast<ocl::Sequence&>(**static_cast<ocl::Handle*>(sequence));
  const std::lock_guard<std::mutex> lock(replaced.mutex);
  replaced.replacement = *static_cast<ocl::Handle*>(by);
}
}

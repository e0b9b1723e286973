// What is remembered of calls: recipes by their keys, within a bound on the memory they keep.
#include <algorithm>
#include <cstring>

#include "fusion/recipe.h"

namespace ocl {

namespace {

constexpr size_t kMostBytes = size_t(64) << 20;  // bound on what all memories keep
constexpr int kTries = 8;
constexpr int kTrusting = 16;  // keys in a row that make an operator's first calls enough

std::atomic<int> suspended{0};

std::shared_mutex memories_mutex;
uint64_t forgotten = 0;  // calls of `forget_recalled`
uint64_t learnt = 0;     // keys, of all memories: the clock of what was used when
size_t kept_bytes = 0;   // by all memories
std::vector<Memory*>& all_memories() {
  static auto* all = new std::vector<Memory*>();
  return *all;
}

// A guess of the host memory that a key keeps: its launches, and what Python has of its rules.
size_t bytes_of(size_t numbers, const Recipe* recipe) {
  constexpr size_t kKey = 192, kLaunch = 512, kRule = 2048;
  size_t bytes = kKey + numbers * sizeof(int32_t);
  if (!recipe) return bytes;
  bytes += sizeof(Recipe);
  for (const Step& step : recipe->steps)
    bytes += (step.prepared->may_be_held ? kRule : kLaunch) + step.words.size() * sizeof(Word);
  bytes += recipe->spaces.size() * sizeof(Space);
  for (const Result& result : recipe->results)
    bytes += sizeof(Result) + 2 * result.sizes.size() * sizeof(int64_t);
  return bytes;
}

}  // namespace

Memory::Memory() {
  const std::unique_lock<std::shared_mutex> lock(memories_mutex);
  all_memories().push_back(this);
}

Memory::~Memory() {
  const std::unique_lock<std::shared_mutex> lock(memories_mutex);
  auto& all = all_memories();
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
  for (auto& [hash, known] : known_) set_bytes(known, 0);
}

// A forked child takes no lock, since a thread of the parent may have held it at the fork. Its
// calls run in Python, which raises.
bool Memory::is_suspended() {
  return suspended.load(std::memory_order_relaxed) > 0 || in_forked_child();
}

bool Memory::is_of(const Known& known, const Key& key) {
  const auto& numbers = key.numbers;
  if (known.wide)
    return known.numbers.size() == 2 * numbers.size() &&
           !std::memcmp(known.numbers.data(), numbers.data(), numbers.size() * sizeof(int64_t));
  return std::equal(numbers.begin(), numbers.end(), known.numbers.begin(), known.numbers.end());
}

// Sizes and strides are below 2^31. In 64 bits, keys would be a third of what is kept.
void Memory::set_numbers(Known& known, const Key& key) {
  const auto& numbers = key.numbers;
  known.wide = std::any_of(numbers.begin(), numbers.end(),
                           [](int64_t number) { return number != int32_t(number); });
  if (!known.wide) {
    known.numbers.assign(numbers.begin(), numbers.end());
    return;
  }
  known.numbers.resize(2 * numbers.size());
  std::memcpy(known.numbers.data(), numbers.data(), numbers.size() * sizeof(int64_t));
}

Memory::Found Memory::look_up(const Key& key) const {
  if (is_suspended()) return {nullptr, true, 0};
  const uint64_t hash = key.hash();
  const std::shared_lock<std::shared_mutex> lock(memories_mutex);
  const auto found = known_.find(hash);
  if (found == known_.end()) return {nullptr, false, forgotten};
  const Known& known = found->second;
  if (!is_of(known, key)) return {nullptr, true, forgotten};
  if (known.used.load(std::memory_order_relaxed) != learnt)  // else threads share the line
    known.used.store(learnt, std::memory_order_relaxed);
  return {known.sure ? known.recipe : nullptr, !known.sure && known.tries >= kTries, forgotten};
}

// Whether a first call is enough: it makes nothing for later ones, and all keys before did the same
// twice.
bool Memory::is_trusted(const Recipe& recipe) const {
  return alike_ >= kTrusting && !recipe.drawn.generator && !recipe.leaves;
}

void Memory::set_bytes(Known& known, size_t bytes) {
  kept_bytes += bytes - known.bytes;
  known.bytes = bytes;
}

// A deleted recipe may free memory, and that may call Python: so it is deleted after the lock.
void Memory::learn(const Key& key, const Recipe* recipe, uint64_t asked) {
  Gone gone;
  std::shared_ptr<const Recipe> replaced;
  const std::unique_lock<std::shared_mutex> lock(memories_mutex);
  if (asked != forgotten) return;
  const auto [place, is_new] = known_.try_emplace(key.hash());
  Known& known = place->second;
  if (is_new) {
    set_numbers(known, key);
    known.used = ++learnt;
  } else if (!is_of(known, key)) {
    return;
  }
  if (known.sure && (!recipe || recipe->drawn.seed == known.recipe->drawn.seed)) return;
  auto sure = recipe && known.recipe ? confirmed(*known.recipe, *recipe) : nullptr;
  if (!recipe || known.tries) alike_ = known.tries == 1 && sure ? alike_ + 1 : 0;
  known.sure = sure || (is_new && recipe && is_trusted(*recipe));
  ++known.tries;
  if (!sure && recipe) sure = std::make_shared<const Recipe>(*recipe);
  replaced = std::exchange(known.recipe, std::move(sure));
  set_bytes(known, bytes_of(known.numbers.size(), known.recipe.get()));
  if (kept_bytes > kMostBytes) drop_unused(gone);
}

// Drops the quarter of all keys that was not used for longest. Keys may share one age, even all of
// them: `used` counts keys learnt, and lookups alone learn none.
void Memory::drop_unused(Gone& gone) {
  std::vector<uint64_t> used;
  for (const Memory* memory : all_memories())
    for (const auto& [hash, known] : memory->known_) used.push_back(known.used);
  const auto quarter = used.begin() + std::ptrdiff_t(used.size() / 4);
  std::nth_element(used.begin(), quarter, used.end());
  const uint64_t bound = *quarter;
  auto ties = std::count(used.begin(), quarter, bound);  // keys of this age that go
  for (Memory* memory : all_memories()) {
    for (auto at = memory->known_.begin(); at != memory->known_.end();) {
      const auto here = at++;
      const uint64_t age = here->second.used;
      if (age > bound || (age == bound && ties == 0)) continue;
      if (age == bound) --ties;
      memory->set_bytes(here->second, 0);
      gone.push_back(memory->known_.extract(here));
    }
  }
}

Memory::Recipes Memory::emptied() {
  for (auto& [hash, known] : known_) set_bytes(known, 0);
  alike_ = 0;
  return std::exchange(known_, {});
}

void forget_recalled() {
  std::vector<Memory::Recipes> gone;  // deleted after the lock, as in `learn`
  const std::unique_lock<std::shared_mutex> lock(memories_mutex);
  ++forgotten;
  for (Memory* memory : all_memories()) gone.push_back(memory->emptied());
}

}  // namespace ocl

extern "C" {

void ocl_forget_recalled() { ocl::forget_recalled(); }

// Nothing is recalled while the sum of `by` over all calls is positive.
void ocl_suspend_recall(int by) { ocl::suspended += by; }
}

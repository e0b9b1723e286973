// Recipes: what a call did, to be repeated by the next equal call. docs/fusion.md shows the whole.
//
// Operators are written in Python, which prepares launches once and then looks them up. A call with
// the same shapes, strides, dtypes and overlap does the same every time: it allocates the same
// bytes and enqueues launches whose words are addresses of operands, addresses of the allocated
// bytes, and constants. So calls are noted. Once two calls in a row did the same, later ones do it
// without Python. Where sizes vary, most calls with a key are its first or second: so the first one
// is enough for an operator whose last keys all did the same in their first two calls. What a call
// reads besides is constant, too, if it is a table. A call that a recipe cannot repeat (it copies
// to the host, or reads memory of unknown origin) is not recalled.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/GeneratorImpl.h>

#include <algorithm>
#include <atomic>
#include <shared_mutex>
#include <tuple>
#include <unordered_map>

#include "runtime/launch.h"

namespace ocl {

// ---- notes: what this thread does during a noted call; they cost nothing while no call is noted

struct Noted {
  Handle prepared;
  std::vector<int64_t> words;
};

struct Allocated {
  int64_t address;
  size_t bytes;
  size_t before;  // launches that were enqueued before
};

// Counters that a call took of a generator, whose random numbers are a function of seed and
// counter.
struct Drawn {
  c10::GeneratorImpl* generator = nullptr;  // a device's own, which no one frees; null: none taken
  uint64_t seed = 0;
  uint64_t first = 0;
  uint64_t count = 0;
};

struct Notes {
  std::vector<Noted> enqueued;
  std::vector<Allocated> allocated;
  Drawn drawn;
  bool complete = true;
};

void note_enqueued(const Handle& prepared, const int64_t* words);
void note_allocated(const void* address, size_t bytes);
// A recipe takes counters once: a call that does so twice is not recalled.
void note_drawn(const Drawn& drawn);
// Notes that no recipe can repeat this call.
void note_other();
// Whether this thread's call is noted.
bool is_noting();

// While one exists, what this thread does is noted, for this call and the calls around it.
class Noting : public Notes {
 public:
  Noting();
  ~Noting();
  Noting(const Noting&) = delete;
  Noting& operator=(const Noting&) = delete;

 private:
  friend void note_enqueued(const Handle&, const int64_t*);
  friend void note_allocated(const void*, size_t);
  friend void note_drawn(const Drawn&);
  friend void note_other();
  Noting* around_;
};

// While one exists, nothing that this thread does is noted, because its launch was noted whole.
class Unnoted {
 public:
  Unnoted();
  ~Unnoted();
  Unnoted(const Unnoted&) = delete;
  Unnoted& operator=(const Unnoted&) = delete;

 private:
  Noting* before_;
};

// ---- what a call depends on

// A key: numbers that are equal exactly if two calls do the same; and addresses of operands.
struct Key {
  c10::SmallVector<int64_t, 64> numbers;  // of a call; a chain has more
  c10::SmallVector<int64_t, 16> operands;

  void add(std::initializer_list<int64_t> more) { add(at::IntArrayRef(more)); }
  void add(at::IntArrayRef more) {
    const size_t before = numbers.size();
    numbers.resize_for_overwrite(before + more.size());
    std::copy(more.begin(), more.end(), numbers.begin() + before);
  }
  // Adds the address's alignment, and its place relative to the operands before it; returns
  // whether one of these is in the same block.
  bool add_operand(int64_t address) { return add_operand(address, first_beside(address)); }
  // The same for a caller that knows which operand is the first in its block.
  bool add_operand(int64_t address, size_t first);
  uint64_t hash() const;

 private:
  // The first operand in the same block as an address, or how many there are.
  size_t first_beside(int64_t address);
  // Where `firsts_` has a block, or will have it.
  uint32_t& first_in(uint64_t block);

  // Once there are many operands: a hash table of the first one in each block, plus one; 0: none.
  std::vector<uint32_t> firsts_;
};

// ---- what a call does

// The origin of a word: an operand, an allocated space (numbered after the operands), the first
// counter that is drawn, or none: then it is the constant `offset`.
struct Word {
  int32_t base;
  int64_t offset;
  bool operator==(const Word& other) const { return base == other.base && offset == other.offset; }
};

struct Step {
  Handle prepared;
  std::vector<Word> words;
  bool operator==(const Step& other) const {
    return prepared == other.prepared && words == other.words;
  }
};

// Memory that is needed from before step `first` until after step `last`.
struct Space {
  static constexpr size_t kForever = SIZE_MAX;
  size_t bytes, first, last;
  bool operator==(const Space& other) const {
    return bytes == other.bytes && first == other.first && last == other.last;
  }
};

struct Result {
  static constexpr int32_t kUndefined = -1, kNew = -2, kNumber = -3, kList = -4;
  int32_t argument;  // which of the operator's is returned, or one of those above
  int32_t space;  // or -1: there are no bytes
  int64_t number;  // of `kNumber`, an integer; of `kList`, how many tensors behind it are its own
  at::ScalarType dtype;
  int64_t offset;
  size_t bytes;  // of the storage
  std::vector<int64_t> sizes, strides;
  bool operator==(const Result& other) const {
    return std::tie(argument, space, number, dtype, offset, bytes, sizes, strides) ==
           std::tie(other.argument, other.space, other.number, other.dtype, other.offset,
                    other.bytes, other.sizes, other.strides);
  }
};

struct Recipe {
  c10::DeviceIndex device = -1;
  std::vector<Space> spaces;
  std::vector<Step> steps;
  std::vector<Result> results;
  std::vector<std::shared_ptr<Block>> tables;  // held, so that constant addresses stay theirs
  Drawn drawn;  // `first`: where the generator stood when the recipe was written
  int64_t outcome = 0;  // what else the call returned
  bool leaves = false;  // whether it allocated what is neither freed nor returned, as a table is
};

// The recipe that two calls in a row with the same key agree on; null if they differ. If both calls
// have their first drawn counter in the same word, the recipe puts the current counter there. To
// see that, the generator must have advanced between the two calls.
std::shared_ptr<const Recipe> confirmed(const Recipe& before, const Recipe& now);

// Takes the counters that a recipe draws and returns the first; nothing if the seed is another.
std::optional<int64_t> take(const Drawn& drawn);

// Makes a recipe from notes; its functions return false for an address of unknown origin.
class Writer {
 public:
  Writer(c10::DeviceIndex device, const Key& key, const Notes& notes);
  bool add_steps();
  // A tensor that was returned; `arguments` are the operator's.
  bool add_result(const c10::IValue& value, const std::vector<c10::IValue>& arguments);
  // Sees what the call leaves behind; to be called once all results are added.
  void end();

  Recipe recipe;

 private:
  bool add_address(Step& step, int64_t address, size_t index);
  bool add_table(int64_t address);
  std::optional<int32_t> space_of(int64_t address, size_t index);

  const Key& key_;
  const Notes& notes_;
  std::vector<int32_t> spaces_;  // of each allocation among the recipe's, or -1
  std::vector<int64_t> origins_;  // where each of the recipe's began
};

// The memory of a recipe's spaces.
using Allocations = c10::SmallVector<c10::DataPtr, 4>;

// Enqueues the steps for these operands and this first counter; leaves the memory of results in
// `spaces`. Returns a `Status`. Raises `OutOfMemoryError`.
int perform(const Recipe& recipe, at::IntArrayRef operands, int64_t counter, Allocations& spaces);

// ---- what is remembered

class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  struct Found {
    std::shared_ptr<const Recipe> recipe;  // null: not sure
    bool hopeless;  // calls with this key differ: `run`, do not learn
    uint64_t asked;  // how often memories had been forgotten at the lookup
  };
  Found look_up(const Key& key) const;
  // Whether every call is to be made in Python.
  static bool is_suspended();
  // A null `recipe` says that none can repeat the call. Nothing is learnt if memories were
  // forgotten since `asked`: the call may have begun with old settings.
  void learn(const Key& key, const Recipe* recipe, uint64_t asked);

 private:
  friend void forget_recalled();
  struct Known {
    std::vector<int32_t> numbers;  // of the key, or their halves if they are `wide`
    std::shared_ptr<const Recipe> recipe;
    bool wide = false;  // some number is beyond 32 bits
    bool sure = false;  // two calls in a row did the same, or the first is trusted
    int tries = 0;
    size_t bytes = 0;  // of host memory that it keeps, at a guess
    mutable std::atomic<uint64_t> used{0};  // when it was last looked up: by keys learnt since
  };
  // By the hash of the key. Of two keys with one hash, the second is never recalled.
  using Recipes = std::unordered_map<uint64_t, Known>;
  using Gone = std::vector<Recipes::node_type>;  // deleted after the lock
  static bool is_of(const Known& known, const Key& key);
  static void set_numbers(Known& known, const Key& key);
  static void drop_unused(Gone& gone);
  Recipes emptied();
  bool is_trusted(const Recipe& recipe) const;
  void set_bytes(Known& known, size_t bytes);

  Recipes known_;
  int alike_ = 0;  // keys in a row whose first two calls did the same
};

// Empties every memory, because a setting or a tuned choice has changed.
void forget_recalled();

// Does what a call with `key` does: repeats its recipe, or runs it and learns. Operators
// (recall.cpp) and chains (held.cpp) differ in three ends:
//   repeated(recipe, spaces, status)  the recipe's steps were enqueued: returns the outcome
//   run(is_noted)                     runs the call in Python: returns the outcome
//   tell(writer, outcome)             adds to the recipe what else the call did; false: untold
template <typename Repeated, typename Run, typename Tell>
int64_t repeat_or_learn(Memory& memory, const Key& key, c10::DeviceIndex device, Repeated repeated,
                        Run run, Tell tell) {
  const auto [recipe, hopeless, asked] = memory.look_up(key);
  if (const auto counter = recipe ? take(recipe->drawn) : std::nullopt) {
    Allocations spaces;
    const int status = perform(*recipe, key.operands, *counter, spaces);
    return repeated(*recipe, spaces, status);
  }
  if (hopeless) return run(false);
  const Noting noting;
  const int64_t outcome = run(true);
  Writer writer(device, key, noting);
  const bool is_told = writer.add_steps() && tell(writer, outcome);
  writer.end();
  memory.learn(key, is_told ? &writer.recipe : nullptr, asked);
  return outcome;
}

}  // namespace ocl

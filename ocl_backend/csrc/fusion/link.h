// A link of the chain of held launches (held.cpp), as Python and recipes have it.
#pragma once

#include <optional>
#include <vector>

#include "fusion/recipe.h"

namespace ocl {

constexpr size_t kLoosely = SIZE_MAX;  // in place of a way: the link need not continue the last one

// How a held launch may continue the chain. Places are among its values.
struct Way {
  uint32_t source;  // what it reads of the launch before it
  std::vector<uint32_t> reads;  // its other operands, all written before the chain
  std::vector<uint32_t> writes;  // its result and others that do not lie in the source
};

// The ways of a launch, and that of a link of a loose chain, if it may be one.
struct Ways {
  std::vector<Way> own;
  std::optional<Way> loose;  // operands and results
};

// Ways that Python gives as `ocl_held_new` has them. Few differ, so that thousands of launches
// share them; they are never freed.
const Ways& ways_of(uint32_t count, const uint32_t* places, bool may_be_loose);

// A launch that may be held back. Its words are those of the unfused launch.
struct Held final : Prepared {
  ~Held() override;
  int enqueue(const int64_t* values) override;

  int64_t number;  // of its rule, in Python
  const char* name;  // the operator's
  Handle alone;  // the unfused launch
  bool is_asked;  // whether its rule runs it, in Python
  c10::DeviceIndex device;
  uint32_t kind, follows;  // a bit for its kind, and the bits of kinds that it may follow
  int64_t items, dtype;
  uint32_t result;  // the place of its result
  bool begins;  // whether it may be the first of a chain
  const Ways* ways = nullptr;
  bool is_in_place = false;  // whether a loose link reads its result, too
};

// A launch that is held back.
struct Link {
  std::shared_ptr<Held> call;
  c10::SmallVector<int64_t, 8> values;
  size_t way;
  bool dropped = false;  // in a loose chain that runs: whether no tensor has the result any more

  int64_t source() const { return values[call->ways->own[way].source]; }
  int64_t result() const { return values[call->result]; }
};

// What Python needs to know of links: how many values each has, its rule, its way, and the values.
// The way of links that run `loosely` says whether the result was dropped.
std::vector<int64_t> described(const Link* first, const Link* end, bool loosely);

// The key of links that may become one kernel; none if a rule in Python must decide.
std::optional<Key> key_of(const Link* first, const Link* end, bool loosely);

}  // namespace ocl

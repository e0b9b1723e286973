#include "fusion/recipe.h"

#include <algorithm>

#include "fusion/held.h"
#include "runtime/graph.h"

namespace ocl {

namespace {

constexpr int64_t kAlignment = 128;
constexpr int32_t kConstant = -1, kCounter = -2;
constexpr size_t kManyOperands = 32;

thread_local Noting* noting = nullptr;
std::atomic<int> notings{0};  // of all threads: without one, a thread need not look for its own

// Two addresses in one block have it in common.
uint64_t block_of(int64_t address) { return uint64_t(address) >> kOffsetBits; }

Noting* noting_here() { return notings.load(std::memory_order_relaxed) ? noting : nullptr; }

uint64_t mixed(uint64_t sum, uint64_t number) {
  sum = (sum ^ number) * 0x9E3779B97F4A7C15ull;
  return sum ^ sum >> 29;
}

}  // namespace

void note_enqueued(const Handle& prepared, const int64_t* words) {
  for (Noting* each = noting_here(); each; each = each->around_)
    each->enqueued.push_back({prepared, {words, words + prepared->is_address.size()}});
}

void note_allocated(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<int64_t>(address);
  for (Noting* each = noting_here(); each; each = each->around_)
    each->allocated.push_back({begin, bytes, each->enqueued.size()});
}

void note_drawn(const Drawn& drawn) {
  for (Noting* each = noting_here(); each; each = each->around_) {
    each->complete = each->complete && !each->drawn.generator;
    each->drawn = drawn;
  }
}

void note_other() {
  for (Noting* each = noting_here(); each; each = each->around_) each->complete = false;
}

bool is_noting() { return noting_here(); }

Noting::Noting() : around_(noting) {
  noting = this;
  ++notings;
}
Noting::~Noting() {
  noting = around_;
  --notings;
}
Unnoted::Unnoted() : before_(noting_here()) {
  if (before_) noting = nullptr;
}
Unnoted::~Unnoted() {
  if (before_) noting = before_;
}

uint32_t& Key::first_in(uint64_t block) {
  const size_t last = firsts_.size() - 1;  // of a power of two
  size_t at = mixed(0, block) & last;
  while (firsts_[at] && block_of(operands[firsts_[at] - 1]) != block) at = (at + 1) & last;
  return firsts_[at];
}

size_t Key::first_beside(int64_t address) {
  if (operands.size() < kManyOperands) {
    size_t first = 0;
    while (first < operands.size() && block_of(operands[first]) != block_of(address)) ++first;
    return first;
  }
  const auto first = [&](int64_t operand, size_t index) {
    uint32_t& found = first_in(block_of(operand));
    if (!found) found = uint32_t(index + 1);
    return size_t(found - 1);
  };
  if (firsts_.size() < 2 * operands.size()) {
    size_t size = 1;
    while (size < 8 * operands.size()) size *= 2;
    firsts_.assign(size, 0);
    for (size_t i = 0; i < operands.size(); ++i) first(operands[i], i);
  }
  return first(address, operands.size());
}

bool Key::add_operand(int64_t address, size_t first) {
  operands.push_back(address);
  add({address % kAlignment + kAlignment * int64_t(first), address - operands[first]});
  return first + 1 < operands.size();
}

uint64_t Key::hash() const {
  uint64_t sum = numbers.size();
  for (const int64_t number : numbers) sum = mixed(sum, uint64_t(number));
  return sum;
}

Writer::Writer(c10::DeviceIndex device, const Key& key, const Notes& notes)
    : key_(key), notes_(notes), spaces_(notes.allocated.size(), -1) {
  recipe.device = device;
  recipe.drawn = notes.drawn;
}

bool Writer::add_steps() {
  for (size_t index = 0; index < notes_.enqueued.size(); ++index) {
    const Noted& noted = notes_.enqueued[index];
    Step step{noted.prepared, {}};
    for (size_t i = 0; i < noted.words.size(); ++i) {
      const int64_t word = noted.words[i];
      if (word == 0 || !noted.prepared->is_address[i]) {
        step.words.push_back({kConstant, word});
      } else if (!add_address(step, word, index)) {
        return false;
      }
    }
    recipe.steps.push_back(std::move(step));
  }
  return notes_.complete;
}

bool Writer::add_address(Step& step, int64_t address, size_t index) {
  if (const auto space = space_of(address, index)) {
    recipe.spaces[size_t(*space)].last = index;
    const auto base = int32_t(key_.operands.size()) + *space;
    step.words.push_back({base, address - origins_[size_t(*space)]});
    return true;
  }
  for (size_t i = 0; i < key_.operands.size(); ++i) {
    if (block_of(key_.operands[i]) != block_of(address)) continue;
    step.words.push_back({int32_t(i), address - key_.operands[i]});
    return true;
  }
  // the record of faults lives as long as the device
  if (address != device_at(recipe.device).faults.load() && !add_table(address)) return false;
  step.words.push_back({kConstant, address});
  return true;
}

// Holds the block of an address, if it is a table: it is not the operator's argument, and yet every
// call like this one reads it.
bool Writer::add_table(int64_t address) {
  Block* block = hold_block(reinterpret_cast<const void*>(address), recipe.device);
  if (!block) return false;
  recipe.tables.emplace_back(block, let_go_block);
  return block->is_table;
}

// The allocated space at an address, as the `index`th command sees it: the youngest in that block.
std::optional<int32_t> Writer::space_of(int64_t address, size_t index) {
  for (size_t i = notes_.allocated.size(); i-- > 0;) {
    const Allocated& allocated = notes_.allocated[i];
    if (allocated.before > index || block_of(allocated.address) != block_of(address)) continue;
    if (spaces_[i] < 0) {
      spaces_[i] = int32_t(recipe.spaces.size());
      origins_.push_back(allocated.address);
      recipe.spaces.push_back({allocated.bytes, allocated.before, allocated.before});
    }
    return spaces_[i];
  }
  return {};
}

bool Writer::add_result(const c10::IValue& value, const std::vector<c10::IValue>& arguments) {
  Result result{Result::kUndefined, -1, 0, at::kFloat, 0, 0, {}, {}};
  if (value.isInt()) {
    result.argument = Result::kNumber;
    result.number = value.toInt();
    recipe.results.push_back(std::move(result));
    return true;
  }
  if (value.isTensorList()) {
    const auto tensors = value.toListRef();
    result.argument = Result::kList;
    result.number = int64_t(tensors.size());
    recipe.results.push_back(std::move(result));
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](const auto& one) { return add_result(one, arguments); });
  }
  if (!value.isTensor()) return false;
  const at::Tensor& tensor = value.toTensor();
  if (tensor.defined()) {
    result.argument = Result::kNew;
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].isTensor() && arguments[i].toTensor().is_same(tensor))
        result.argument = int32_t(i);
  }
  if (result.argument == Result::kNew) {
    if (!tensor.is_privateuseone() || tensor.device().index() != recipe.device) return false;
    if (tensor.layout() != at::kStrided || tensor.is_conj() || tensor.is_neg()) return false;
    const auto& storage = tensor.storage();
    if (storage.data()) {
      const auto begin = reinterpret_cast<int64_t>(storage.data());
      const auto space = space_of(begin, notes_.enqueued.size());
      if (!space || begin != origins_[size_t(*space)]) return false;
      recipe.spaces[size_t(*space)].last = Space::kForever;
      result.space = *space;
    }
    result.dtype = tensor.scalar_type();
    result.offset = tensor.storage_offset();
    result.bytes = storage.nbytes();
    result.sizes = tensor.sizes().vec();
    result.strides = tensor.strides().vec();
  }
  recipe.results.push_back(std::move(result));
  return true;
}

void Writer::end() {
  for (size_t i = 0; i < notes_.allocated.size() && !recipe.leaves; ++i) {
    const int32_t space = spaces_[i];
    const bool is_result = space >= 0 && recipe.spaces[size_t(space)].last == Space::kForever;
    recipe.leaves =
        !is_result && is_owned(reinterpret_cast<const void*>(notes_.allocated[i].address));
  }
}

std::shared_ptr<const Recipe> confirmed(const Recipe& before, const Recipe& now) {
  const auto all_but_steps = [](const Recipe& recipe) {
    const Drawn& drawn = recipe.drawn;
    return std::tie(recipe.device, recipe.spaces, recipe.results, recipe.outcome, drawn.generator,
                    drawn.seed, drawn.count);
  };
  const uint64_t first = now.drawn.first, first_before = before.drawn.first;
  if (now.drawn.generator && first == first_before) return nullptr;
  if (all_but_steps(before) != all_but_steps(now)) return nullptr;
  auto sure = std::make_shared<Recipe>(now);
  auto steps = before.steps;
  for (size_t i = 0; i < std::min(steps.size(), sure->steps.size()); ++i) {
    auto &words = sure->steps[i].words, &others = steps[i].words;
    for (size_t j = 0; j < std::min(words.size(), others.size()); ++j)
      if (words[j] == Word{kConstant, int64_t(first)} &&
          others[j] == Word{kConstant, int64_t(first_before)} && first != first_before)
        words[j] = others[j] = {kCounter, 0};
  }
  return sure->steps == steps ? sure : nullptr;
}

std::optional<int64_t> take(const Drawn& drawn) {
  if (!drawn.generator) return 0;
  if (graph_here()) return {};  // each replay takes counters of its own
  const std::lock_guard<std::mutex> lock(drawn.generator->mutex_);
  if (drawn.generator->current_seed() != drawn.seed) return {};
  Drawn taken = drawn;
  taken.first = drawn.generator->get_offset();
  drawn.generator->set_offset(taken.first + taken.count);
  note_drawn(taken);  // of the calls that this one is part of
  return int64_t(taken.first);
}

int perform(const Recipe& recipe, at::IntArrayRef operands, int64_t counter, Allocations& spaces) {
  // of words by their base, which begins with that of a counter and that of a constant
  constexpr int32_t kFirst = kCounter;
  c10::SmallVector<int64_t, 32> bases = {counter, 0};
  bases.append(operands.begin(), operands.end());
  const size_t first_space = bases.size();
  bases.resize(first_space + recipe.spaces.size());
  c10::SmallVector<int64_t, 32> words;
  spaces.resize(recipe.spaces.size());
  for (size_t at = 0; at <= recipe.steps.size(); ++at) {
    for (size_t i = 0; i < spaces.size(); ++i) {
      if (recipe.spaces[i].first != at) continue;
      spaces[i] = allocate(recipe.device, recipe.spaces[i].bytes);
      bases[first_space + i] = reinterpret_cast<int64_t>(spaces[i].get());
    }
    if (at == recipe.steps.size()) break;
    const Step& step = recipe.steps[at];
    words.resize_for_overwrite(step.words.size());
    for (size_t i = 0; i < words.size(); ++i)
      words[i] = step.words[i].offset + bases[size_t(step.words[i].base - kFirst)];
    if (const int status = enqueue(step.prepared, words.data())) return status;
    for (size_t i = 0; i < spaces.size(); ++i)
      if (recipe.spaces[i].last == at) spaces[i].clear();
  }
  return kOk;
}

}  // namespace ocl

extern "C" {

// Promises that nothing is written to a tensor's memory until it is freed.
void ocl_set_table(const void* address) {
  if (ocl::Block* block = ocl::locate(address).block) block->is_table = true;
}

void ocl_note_other() { ocl::note_other(); }
}

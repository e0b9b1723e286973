// The chain of launches that are held back; docs/fusion.md shows the whole.
//
// The chain holds each block that a launch reads or writes: a block whose tensor is dropped does
// not return to the allocator before the launch has run. A dropped result cannot be read any more,
// so the launches before and after it may run as one that does not write it.
#include "fusion/held.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <thread>

#include "fusion/link.h"
#include "fusion/number.h"
#include "runtime/deferred.h"
#include "runtime/graph.h"
#include "runtime/interpreter.h"
#include "runtime/profile.h"

namespace ocl {

namespace {

constexpr size_t kMostLinks = 64;
// Bytes of results that a loose chain may hold: at least `kLooseBytes`, and a part of the device's
// memory, which is one in `kLoosePart`.
constexpr size_t kLooseBytes = size_t(1) << 26;
constexpr size_t kLoosePart = 128;

// A call of Python: it runs the launches that the words describe, all as one or only the first,
// and returns how many it ran, or a negative status. After an exception the number means nothing.
void (*run_in_python)(const int64_t* words, int64_t launches, int64_t* ran) = nullptr;

// A block that links read or write, held until the chain has run. `Block::use` is its place.
struct Use {
  Block* block;
  bool writes;  // whether a link writes to it
};

std::recursive_mutex chain_mutex;
auto& chain = *new std::vector<Link>();  // may be left at exit, when the runtime has ended
auto& chain_graph = *new std::shared_ptr<Graph>();  // that records the chain; null: none
std::vector<Use> uses;                   // of the chain's launches, each block once
std::atomic<bool> is_loose{false};       // whether a link of the chain stands in it loosely
bool may_be_loose = true;                // whether every link of the chain may stand in it so
size_t result_bytes = 0;                 // of the chain's links
std::atomic<bool> holding{false};        // whether there is a chain
std::atomic<std::thread::id> settler;    // the thread that runs the chain
std::atomic<bool> is_on{true};
uint64_t correlation = 0;
std::mutex gone_mutex;
std::vector<int64_t> gone;  // numbers whose rules Python can let go

std::shared_ptr<Held> shared(Held& call) {
  return std::static_pointer_cast<Held>(call.shared_from_this());
}

void let_go_of_uses() {
  c10::SmallVector<Block*, 64> blocks;
  for (const Use& use : uses) {
    use.block->use = -1;
    blocks.push_back(use.block);
  }
  uses.clear();
  let_go_blocks(blocks);
}

// Whether the chain's uses let a further link use a block: it must not read what they write, nor
// write what they use. With `loosely`, it only must not write what they write; Python orders the
// rest.
bool may_use(const Block& block, bool writes, bool loosely) {
  if (block.use < 0) return true;
  const bool is_written = uses[size_t(block.use)].writes;
  return loosely ? !(writes && is_written) : !(writes || is_written);
}

// Holds the blocks that a link uses, all or none. Fails if an address is no memory of the device,
// or may not be used.
class Holding {
 public:
  Holding(const Held& call, const int64_t* values, bool loosely)
      : call_(call), values_(values), loosely_(loosely) {}

  // Adds what lies at a place of the values.
  void add(uint32_t place, bool writes) {
    if (!fits_ || !values_[place]) return;
    Block* block = locate(reinterpret_cast<const void*>(values_[place])).block;
    fits_ = block && block->device == call_.device && may_use(*block, writes, loosely_) &&
            (writes || loosely_ || !is_written_here(block));
    if (fits_) found_.push_back({block, writes});
  }

  bool hold_all() const {
    if (!fits_) return false;
    for (const auto& [block, writes] : found_) {
      if (block->use < 0) {
        block->use = int32_t(uses.size());
        uses.push_back({block, false});
        hold(*block);
      }
      if (writes) uses[size_t(block->use)].writes = true;
    }
    return true;
  }

 private:
  bool is_written_here(const Block* block) const {
    return std::any_of(found_.begin(), found_.end(),
                       [&](const Use& use) { return use.block == block && use.writes; });
  }

  const Held& call_;
  const int64_t* values_;
  bool loosely_, fits_ = true;
  c10::SmallVector<Use, 12> found_;
};

size_t most_loose_bytes(c10::DeviceIndex device) {
  return std::max(kLooseBytes, device_at(device).total_bytes / kLoosePart);
}

// The memory that a launch's result needs; a result in place needs none.
size_t result_bytes_of(const Held& call, const int64_t* values) {
  if (call.is_in_place) return 0;
  const Block* block = locate(reinterpret_cast<const void*>(values[call.result])).block;
  return block ? block->size : 0;
}

// Appends a launch to the chain if all that it uses can be held.
bool append(Held& call, const int64_t* values, size_t way, bool first) {
  const bool loosely = way == kLoosely && call.ways->loose;
  const Way& by = loosely ? *call.ways->loose : call.ways->own[way];
  Holding blocks(call, values, loosely);
  if (first) {
    blocks.add(by.source, false);
    blocks.add(call.result, true);
  }
  for (const uint32_t place : by.reads) blocks.add(place, false);
  for (const uint32_t place : by.writes) blocks.add(place, true);
  if (!blocks.hold_all()) return false;
  if (chain.empty()) chain_graph = graph_here();
  may_be_loose = (chain.empty() || may_be_loose) && call.ways->loose && !call.is_asked;
  Link& link = chain.emplace_back();
  link.call = shared(call);
  link.values.assign(values, values + call.is_address.size());
  link.way = way;
  if (loosely) is_loose.store(true, std::memory_order_relaxed);
  result_bytes += result_bytes_of(call, values);
  correlation = is_listened_to() ? current_correlation() : 0;
  holding.store(true, std::memory_order_release);
  return true;
}

// Appends a launch to a loose chain, whatever it reads. While autograd keeps results, nothing can
// be fused, so nothing is held.
bool append_loosely(Held& call, const int64_t* values) {
  if (!call.ways->loose || call.is_asked || at::GradMode::is_enabled() ||
      chain.size() >= kMostLinks)
    return false;
  // What is dropped by now was read by no link: nothing becomes one with it. Held on, its memory
  // could not be the next result's, and a loop that drops its results would write all of a cache.
  if (!chain.empty() && is_dropped(reinterpret_cast<const void*>(chain.back().result())))
    return false;
  // a chain is of one device, because its links read what others wrote, or stand in it loosely
  if (!chain.empty() && (!may_be_loose || chain.front().call->device != call.device)) return false;
  if (result_bytes + result_bytes_of(call, values) > most_loose_bytes(call.device)) return false;
  return append(call, values, kLoosely, false);
}

bool continues(const Held& call, int64_t source) {
  const Link& last = chain.back();
  return !is_loose && last.result() == source && (call.follows & last.call->kind) &&
         last.call->items == call.items && last.call->dtype == call.dtype;
}

int64_t ask_python(const Link* first, const Link* end, bool loosely) {
  const auto words = described(first, end, loosely);
  const Uninterrupted whole;
  int64_t ran = 0;
  run_in_python(words.data(), end - first, &ran);
  if (!ran) return -fail(kInterrupted, "what was held back met an interrupt");
  if (ran < 0) fail(int(-ran), python_error());
  return ran;
}

// Enqueues an unfused launch; returns a `Status`.
int run_alone(Held& call, const int64_t* values) {
  if (!call.is_asked) return call.alone->enqueue(values);
  const Link link{shared(call), {values, values + call.is_address.size()}, 0};
  return int(-std::min<int64_t>(ask_python(&link, &link + 1, false), 0));
}

// The end of the links from `at` that may become one: all results except the last are dropped.
size_t reach(size_t at) {
  size_t end = at + 1;
  for (; end < chain.size(); ++end) {
    const int64_t result = chain[end - 1].result();
    // a destructor that calls torch may have enqueued another call in between
    if (chain[end].source() != result) break;
    if (chain[end].result() != result && !is_dropped(reinterpret_cast<const void*>(result))) break;
  }
  return end;
}

// Runs the first link with the links after it that become one with it; returns how many these are,
// or a negative status.
int64_t run_together(const Link* first, const Link* end, bool loosely) {
  static auto* memory = new Memory();
  const auto key = key_of(first, end, loosely);
  const auto run = [&](bool) { return ask_python(first, end, loosely); };
  if (!key) return run(false);
  const auto repeated = [](const Recipe& recipe, const auto&, int status) {
    return status ? -int64_t(status) : recipe.outcome;
  };
  const auto tell = [](Writer& writer, int64_t outcome) {
    writer.recipe.outcome = outcome;
    return outcome >= 0;
  };
  return repeat_or_learn(*memory, *key, first->call->device, repeated, run, tell);
}

// Enqueues the chain; the rest of it is lost if a part fails. Returns a `Status`.
int run_chain() {
  if (is_loose)  // asked once: another thread may drop a result meanwhile
    for (Link& link : chain)
      link.dropped = is_dropped(reinterpret_cast<const void*>(link.result()));
  for (size_t at = 0; at < chain.size();) {
    const size_t end = is_loose ? chain.size() : reach(at);
    const Link* first = &chain[at];
    int64_t status = 0;
    if (end == at + 1) {
      status = run_alone(*first->call, first->values.data());
      at = end;
    } else {
      const int64_t ran = run_together(first, first + (end - at), is_loose);
      status = std::max<int64_t>(-ran, 0);
      at += size_t(std::max<int64_t>(ran, 0));
    }
    if (!status) continue;
    return fail(int(status),
                last_error() + "\n" + chain.back().call->name + " was held back until now");
  }
  return kOk;
}

int settle() try {
  if (const int status = settle_number()) return status;
  if (!holding.load(std::memory_order_acquire) || in_forked_child()) return kOk;
  if (settler.load() == std::this_thread::get_id()) return kOk;  // its launches ask, too
  if (is_enqueueing_deferred()) return kOk;  // what it calls goes before the chain
  const PatientLock locked(chain_mutex);
  if (chain.empty()) return kOk;
  const Unnoted unnoted;
  const Within within(chain_graph);  // also if it is another thread that runs the chain
  settler.store(std::this_thread::get_id());
  const bool is_named = is_listened_to();
  if (is_named) push_correlation(correlation);
  const auto end = c10::make_scope_exit([&] {
    if (is_named) pop_correlation();
    chain.clear();
    chain_graph.reset();
    is_loose = false;
    result_bytes = 0;
    let_go_of_uses();
    holding.store(false, std::memory_order_release);
    settler.store({});
  });
  return run_chain();
} catch (...) {
  return fail_with_exception();
}

}  // namespace

// Python drops the rule only after this: a recipe or a chain may still need it before.
Held::~Held() {
  const std::lock_guard<std::mutex> lock(gone_mutex);
  gone.push_back(number);
}

int Held::enqueue(const int64_t* values) {
  if (in_forked_child()) return alone->enqueue(values);  // which says so
  if (is_enqueueing_deferred()) return run_alone(*this, values);
  const PatientLock locked(chain_mutex);
  if (settler.load() != std::this_thread::get_id()) {
    if (!chain.empty() && chain_graph != graph_here())
      if (const int status = settle()) return status;
    for (size_t way = 0; way < ways->own.size() && !chain.empty(); ++way)
      if (continues(*this, values[ways->own[way].source]) && append(*this, values, way, false))
        return kOk;
    if (!chain.empty() && append_loosely(*this, values)) return kOk;
    if (const int status = settle()) return status;
    if (begins && is_on && append(*this, values, 0, true)) return kOk;
    if (is_on && append_loosely(*this, values)) return kOk;
  }
  return run_alone(*this, values);
}

void settle_held() {
  if (const int status = settle()) raise(status);
}

bool holds_back() { return is_on; }

bool holds_loosely() { return holding.load(std::memory_order_acquire) && is_loose; }

Observer& fusion_observer() {
  struct Fusion final : Observer {
    void before_command() override { settle_held(); }
    void short_of_memory(int device) override {
      settle_held();
      wait_for_programs(c10::DeviceIndex(device));
    }
    void before_repeatable(const Handle& command, const int64_t* words) override {
      note_enqueued(command, words);
      const Unnoted unnoted;
      settle_held();
    }
    void unrepeatable() override { note_other(); }
    void allocated(const void* address, size_t bytes) override { note_allocated(address, bytes); }
  };
  static auto* told = new Fusion();
  return *told;
}

int enqueue(const Handle& prepared, const int64_t* words) {
  note_enqueued(prepared, words);
  const Unnoted unnoted;
  if (const int status = prepared->may_be_held ? settle_number() : settle()) return status;
  return prepared->enqueue(words);
}

}  // namespace ocl

extern "C" {

// Gives the chain what it needs of Python: `run` for links that need their rules, and the
// interpreter's lock.
void ocl_hold_with(void (*run)(const int64_t*, int64_t, int64_t*), int (*has)(), void* (*let)(),
                   void (*take)(void*)) {
  ocl::run_in_python = run;
  ocl::mind_interpreter(has, let, take);
}

// For each way: the place of its source, the number of other operands, their places, the number of
// results, their places. If it `may_be_loose`, the last way is that of a loose link.
void* ocl_held_new(int64_t number, const char* name, void* alone, int is_asked, int device,
                   uint32_t kind, uint32_t follows, int64_t items, int64_t dtype, uint32_t result,
                   int begins, int may_be_loose, uint32_t ways, const uint32_t* places) {
  const auto held = std::make_shared<ocl::Held>();
  held->may_be_held = true;
  held->number = number;
  held->name = ocl::keep_name(name);
  held->alone = *static_cast<ocl::Handle*>(alone);
  held->is_asked = is_asked != 0;
  held->device = c10::DeviceIndex(device);
  held->kind = kind;
  held->follows = follows;
  held->items = items;
  held->dtype = dtype;
  held->result = result;
  held->begins = begins != 0;
  held->is_address = held->alone->is_address;
  held->ways = &ocl::ways_of(ways, places, may_be_loose != 0);
  if (const auto& loose = held->ways->loose) {
    const auto& reads = loose->reads;
    held->is_in_place = std::find(reads.begin(), reads.end(), result) != reads.end();
  }
  return new ocl::Handle(held);
}

// Takes a word for each that changes, in order: an address, an integer or the bits of a double.
// Returns a `Status`; the text is in `ocl_last_error`.
int ocl_enqueue(void* prepared, const int64_t* words) {
  return ocl::enqueue(*static_cast<ocl::Handle*>(prepared), words);
}

// The number of a rule whose call was deleted, each once; 0: there is none.
int64_t ocl_held_gone() {
  const std::lock_guard<std::mutex> lock(ocl::gone_mutex);
  if (ocl::gone.empty()) return 0;
  const int64_t number = ocl::gone.back();
  ocl::gone.pop_back();
  return number;
}

// Enqueues the held launches. Returns a `Status`.
int ocl_settle() { return ocl::settle(); }
int ocl_is_holding() { return ocl::holding.load(); }
void ocl_set_fusion(int on) { ocl::is_on = on != 0; }
}

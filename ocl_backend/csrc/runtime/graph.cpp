#include "runtime/graph.h"

#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "runtime/deferred.h"
#include "runtime/faults.h"
#include "runtime/interpreter.h"
#include "runtime/observer.h"

namespace ocl {

namespace {

std::atomic<int> open_graphs{0};
thread_local std::shared_ptr<Graph> given;  // by a `Within`
thread_local bool is_given = false;
thread_local std::shared_ptr<c10::ThreadLocalDebugInfo> marked;  // of a capture that this began

// Autograd's threads have the debug information of the thread that they work for.
struct Mark final : c10::DebugInfoBase {
  explicit Mark(const std::shared_ptr<Graph>& marked) : graph(marked) {}
  std::weak_ptr<Graph> graph;
};

constexpr std::string_view kName = "ocl graph";

// Of torch's enumeration before 2.12, of an address since then.
template <typename Kind>
Kind kind_of_mark() {
  if constexpr (std::is_enum_v<Kind>) {
    return Kind::TEST_INFO_2;
  } else {
    return Kind(&kName);
  }
}

auto kind() { return kind_of_mark<c10::DebugInfoKind>(); }

// A number that no argument has by chance, with room above it.
int64_t new_mark() {
  std::random_device random;
  const uint64_t bits = uint64_t(random()) << 32 | random();
  return int64_t((bits >> 3) | uint64_t(1) << 61);
}

}  // namespace

Graph::Graph(c10::DeviceIndex of, uint64_t from) : device(of), pool(from) {
  share_pool(device, pool);
}

// What the thread of the device still has to enqueue keeps the graph; it must not be what ends it,
// since memory that is freed may call Python.
Graph::~Graph() {
  let_go_blocks(std::vector<Block*>(held_.begin(), held_.end()));
  of_weights_.clear();
  leave_pool(device, pool);
}

int Graph::record(Prepared& command, const Resolved& resolved) {
  const PatientLock lock(recording_);
  note_marks(resolved.words);
  const Location faults = locate(reinterpret_cast<const void*>(device_at(device).faults.load()));
  commands_.push_back({command.shared_from_this(), resolved.words});
  for (size_t i = 0; i < resolved.blocks.size(); ++i) {
    Block* block = resolved.blocks[i];
    // memory of the pool is free for later commands once its tensor is dropped, as it was eagerly
    if (block->pool != pool && held_.insert(block).second) hold(*block);
    if (resolved.is_written[i]) written_.insert(block);
    may_fault_ = may_fault_ || block == faults.block;
  }
  return kOk;
}

void Graph::note_marks(const c10::SmallVector<int64_t, 24>& words) {
  for (size_t s = 0; s < sources_.size(); ++s) {
    for (size_t w = 0; w < words.size(); ++w) {
      const auto offset = uint64_t(words[w]) - uint64_t(sources_[s].first);
      if (words[w] == sources_[s].seed) patches_.push_back({commands_.size(), w, 2 * s, 0});
      if (offset < sources_[s].count) patches_.push_back({commands_.size(), w, 2 * s + 1, offset});
    }
  }
}

std::pair<int64_t, int64_t> Graph::draw(c10::intrusive_ptr<c10::GeneratorImpl> generator,
                                        uint64_t count) {
  const PatientLock lock(recording_);
  auto at = std::find_if(sources_.begin(), sources_.end(),
                         [&](const Source& one) { return one.generator == generator; });
  if (at == sources_.end())
    at = sources_.insert(at, {std::move(generator), new_mark(), new_mark(), 0});
  const uint64_t first = uint64_t(at->first) + at->count;
  at->count += count;
  return {at->seed, int64_t(first)};
}

void Graph::read_kept(const Addresses& weights, Kept kept, std::function<int()> make) {
  const PatientLock lock(recording_);
  of_weights_.push_back({weights, std::move(kept), std::move(make)});
}

bool Graph::changes(const Addresses& addresses) {
  const PatientLock lock(recording_);
  return std::any_of(addresses.begin(), addresses.end(), [&](int64_t address) {
    Block* block = locate(reinterpret_cast<const void*>(address)).block;
    return !block || block->pool == pool || written_.count(block);
  });
}

int Graph::refuse(const std::string& reason) {
  const PatientLock lock(recording_);
  if (reason_.empty()) reason_ = reason;
  return fail(kFailed, reason);
}

void Graph::finish() {
  const PatientLock lock(recording_);
  TORCH_CHECK(reason_.empty(), "the capture failed: ", reason_);
  for (Command& one : commands_) one.command = one.command->apart();
}

// Makes again what was made of weights to which something was written since.
int Graph::make_again() {
  for (OfWeights& one : of_weights_) {
    auto writes = writes_to(one.weights);
    if (writes == one.kept.writes) continue;
    if (const int status = one.make()) return status;
    one.kept.writes = std::move(writes);
  }
  return kOk;
}

// Takes the counters of one replay.
Resolved Graph::numbers() const {
  Resolved taken;
  for (const Source& one : sources_) {
    const std::lock_guard<std::mutex> lock(one.generator->mutex_);
    const uint64_t first = one.generator->get_offset();
    one.generator->set_offset(first + one.count);
    taken.words.append({int64_t(one.generator->current_seed()), int64_t(first)});
  }
  return taken;
}

int Graph::replay() try {
  check_not_forked();
  TORCH_CHECK(!graph_here(), "a graph is replayed while another is captured. Replay it behind "
                             "the capture");
  observer().unrepeatable();
  observer().before_command();
  wait_for_programs(device);
  const PatientLock lock(replaying_);
  if (const int status = make_again()) return status;
  const Resolved taken = numbers();
  for (Block* block : written_) ++block->writes;
  if (may_fault_) device_at(device).may_have_faulted = true;
  const int status = hand_over(device, *this, taken, was_accepted_);
  was_accepted_ = was_accepted_ || !status;
  return status;
} catch (...) {
  return fail_with_exception();
}

// After a lack of memory it is called once more, and goes on.
int Graph::submit(const int64_t* resolved) {
  if (!next_)
    for (const Patch& one : patches_)
      commands_[one.command].words[one.word] = int64_t(uint64_t(resolved[one.number]) + one.offset);
  for (; next_ < commands_.size(); ++next_) {
    const Command& one = commands_[next_];
    const int status = one.command->submit(one.words.data());
    if (!status) continue;
    is_again_ = status == kOutOfMemory && !is_again_;
    if (!is_again_) next_ = 0;
    return status;
  }
  next_ = 0;
  is_again_ = false;
  return kOk;
}

std::string Graph::listing() const {
  std::ostringstream text;
  for (const Command& one : commands_) text << one.command->label() << '\n';
  return text.str();
}

std::shared_ptr<Graph> graph_here() {
  if (!open_graphs.load(std::memory_order_relaxed)) return {};
  const auto* mark = static_cast<Mark*>(c10::ThreadLocalDebugInfo::get(kind()));
  auto graph = is_given ? given : mark ? mark->graph.lock() : nullptr;
  return graph && graph->is_open ? graph : nullptr;
}

std::shared_ptr<Graph> graph_here(c10::DeviceIndex device) {
  auto graph = graph_here();
  return graph && graph->device == device ? graph : nullptr;
}

uint64_t pool_here(c10::DeviceIndex device) {
  const auto graph = graph_here(device);
  return graph ? graph->pool : 0;
}

Within::Within(std::shared_ptr<Graph> graph)
    : before_(std::exchange(given, std::move(graph))), was_given_(std::exchange(is_given, true)) {}
Within::~Within() {
  given = std::move(before_);
  is_given = was_given_;
}

void begin_capture(const std::shared_ptr<Graph>& graph) {
  TORCH_CHECK(!graph_here(), "this thread already captures a graph. End that capture first");
  observer().before_command();
  wait_for_programs(graph->device);
  graph->is_open = true;
  ++open_graphs;
  c10::ThreadLocalDebugInfo::_push(kind(), std::make_shared<Mark>(graph));
  marked = c10::ThreadLocalDebugInfo::current();
}

void end_capture(const std::shared_ptr<Graph>& graph, bool abandon) {
  TORCH_CHECK(graph_here() == graph, "this thread does not capture the graph that is to end. The "
                                     "thread that began a capture ends it");
  try {
    observer().before_command();  // what is held back belongs to the graph
  } catch (const std::exception& error) {
    graph->refuse(error.what());
  }
  graph->is_open = false;
  --open_graphs;
  // a profiler that began meanwhile has its own information above: then the mark stays, closed
  if (c10::ThreadLocalDebugInfo::current() == marked) c10::ThreadLocalDebugInfo::_pop(kind());
  marked.reset();
  if (!abandon) graph->finish();
}

}  // namespace ocl

namespace {

using GraphHandle = std::shared_ptr<ocl::Graph>;

const GraphHandle& graph_of(void* handle) { return *static_cast<GraphHandle*>(handle); }

}  // namespace

extern "C" {

// A number by which graphs share a pool of memory.
uint64_t ocl_graph_pool_new() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Begins to record this thread's commands on a device; null: `ocl_last_error` says why not.
void* ocl_graph_begin(int device, uint64_t pool) try {
  const auto graph = std::make_shared<ocl::Graph>(c10::DeviceIndex(device), pool);
  ocl::begin_capture(graph);
  return new GraphHandle(graph);
} catch (...) {
  ocl::fail_with_exception();
  return nullptr;
}

// Ends that. Returns a `Status`.
int ocl_graph_end(void* graph, int abandon) try {
  ocl::end_capture(graph_of(graph), abandon != 0);
  return ocl::kOk;
} catch (...) {
  return ocl::fail_with_exception();
}

// Frees a graph and its memory, once the driver has its commands.
void ocl_graph_delete(void* graph) {
  ocl::await_submission(graph_of(graph)->device);
  delete static_cast<GraphHandle*>(graph);
}

// Whether this thread's commands are recorded.
int ocl_is_capturing() { return ocl::graph_here() != nullptr; }

// Lets this thread enqueue during a capture (1), and no longer (-1); calls may be nested.
void ocl_capture_aside(int by) {
  thread_local std::vector<std::unique_ptr<ocl::Within>> asides;
  if (by > 0) {
    asides.push_back(std::make_unique<ocl::Within>(nullptr));
  } else {
    asides.pop_back();
  }
}

// One line per command; valid until the thread's next call.
const char* ocl_graph_listing(void* graph) {
  thread_local std::string text;
  text = graph_of(graph)->listing();
  return text.c_str();
}
}

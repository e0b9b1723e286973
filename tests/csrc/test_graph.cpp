// Graphs: commands are recorded, replayed, and keep their memory; other threads go on.
#include "runtime/graph.h"

#include <c10/util/Exception.h>

#include <thread>

#include "entries.h"
#include "fake_opencl.h"
#include "runtime/transfer.h"
#include "testing.h"

extern "C" uint64_t ocl_graph_pool_new();

using namespace tests;

namespace {

using Handle = std::shared_ptr<ocl::Graph>;

Handle begun(uint64_t pool = ocl_graph_pool_new()) {
  auto graph = std::make_shared<ocl::Graph>(c10::DeviceIndex(0), pool);
  ocl::begin_capture(graph);
  return graph;
}

int add(const Owned& call, const c10::DataPtr& in, const c10::DataPtr& out, int64_t value) {
  const int64_t words[] = {address(in), address(out), value};
  return ocl_enqueue(call.get(), words);
}

// Numbers that are drawn from it are the counters themselves.
struct Generator final : c10::GeneratorImpl {
  Generator() : c10::GeneratorImpl({c10::DeviceType::PrivateUse1, 0}, c10::DispatchKeySet()) {}
  void set_current_seed(uint64_t) override {}
  uint64_t current_seed() const override { return 1000; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t seed() override { return 0; }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return {}; }
  void set_state(const c10::TensorImpl&) override {}
  GeneratorImpl* clone_impl() const override { return nullptr; }
  uint64_t offset_ = 0;
};

}  // namespace

TEST_CASE("a capture runs nothing, and a replay runs what was recorded in its order") {
  const Owned one(adding("one")), two(adding("two"));
  const auto a = items(), b = items(), c = items();
  fill(a, 1);
  fill(b, 0);
  fill(c, 0);
  fake::clear_log();
  const auto graph = begun();
  CHECK(add(one, a, b, 10) == 0);
  ocl::copy(c.get(), b.get(), kBytes);
  CHECK(add(two, c, a, 100) == 0);
  ocl::end_capture(graph, false);
  CHECK(fake::log().empty());
  CHECK(value_of(a) == 1);
  CHECK(graph->replay() == 0);
  CHECK(value_of(a) == 111);
  CHECK(graph->replay() == 0);
  CHECK(value_of(a) == 221);
  CHECK(fake::log() == std::vector<std::string>{"one", "two", "one", "two"});
}

TEST_CASE("a small write is a constant of the graph") {
  const auto a = items();
  const auto graph = begun();
  fill(a, 5);
  ocl::end_capture(graph, false);
  for (int turn = 0; turn < 2; ++turn) {
    fill(a, 0);
    CHECK(graph->replay() == 0);
    CHECK(value_of(a) == 5);
  }
}

TEST_CASE("what waits is refused, and so is the capture") {
  const auto a = items();
  fill(a, 5);
  const auto graph = begun();
  CHECK_THROWS_AS(value_of(a), c10::Error);
  CHECK_THROWS_AS(ocl::end_capture(graph, false), c10::Error);
  CHECK(!ocl::graph_here());
  CHECK(value_of(a) == 5);
  const auto other = begun();
  CHECK_THROWS_AS(begun(), c10::Error);
  ocl::end_capture(other, true);
}

TEST_CASE("another thread's commands run, and its memory is the device's") {
  const Owned one(adding("one"));
  const auto a = items(), b = items();
  fill(a, 1);
  fake::clear_log();
  const auto graph = begun();
  std::thread([&] {
    CHECK(!ocl::graph_here());
    CHECK(add(one, a, b, 1) == 0);
    CHECK(value_of(b) == 2);
  }).join();
  ocl::end_capture(graph, false);
  CHECK(fake::log() == std::vector<std::string>{"one"});
}

TEST_CASE("what is held back when another thread comes belongs to the graph") {
  serve_chains();
  const Owned held(held_adding(901, "held", kFirst, 0)), one(adding("one"));
  const auto a = items(), b = items(), c = items(), d = items();
  fill(a, 1);
  fill(b, 0);
  fill(c, 3);
  fake::clear_log();
  const auto graph = begun();
  const int64_t words[] = {address(a), address(b), 10};
  CHECK(ocl_enqueue(held.get(), words) == 0);
  CHECK(ocl_is_holding());
  std::thread([&] { CHECK(add(one, c, d, 1) == 0); }).join();
  ocl::end_capture(graph, false);
  CHECK(fake::log() == std::vector<std::string>{"one"});
  CHECK(value_of(b) == 0);
  CHECK(graph->replay() == 0);
  CHECK(value_of(b) == 11);
}

TEST_CASE("memory is used again within the graph, and by no one else until it ends") {
  const uint64_t pool = ocl_graph_pool_new();
  auto graph = begun(pool);
  auto a = items();
  const int64_t place = address(a);
  a.clear();
  a = items();
  CHECK(address(a) == place);
  a.clear();
  ocl::end_capture(graph, false);
  CHECK(address(items()) != place);
  auto second = begun(pool);
  CHECK(address(items()) == place);
  ocl::end_capture(second, false);
  graph.reset();
  CHECK(address(items()) != place);
  second.reset();
  bool is_found = false;
  std::vector<c10::DataPtr> taken;
  for (int i = 0; i < 50 && !is_found; ++i) {
    taken.push_back(items());
    is_found = address(taken.back()) == place;
  }
  CHECK(is_found);
}

TEST_CASE("memory that a graph reads is not given to others when it is freed") {
  const Owned one(adding("one"));
  auto a = items();
  const auto b = items();
  fill(a, 1);
  const int64_t place = address(a);
  auto graph = begun();
  CHECK(add(one, a, b, 10) == 0);
  ocl::end_capture(graph, false);
  a.clear();
  const auto other = items();
  CHECK(address(other) != place);
  fill(other, 50);
  CHECK(graph->replay() == 0);
  CHECK(value_of(b) == 11);
}

TEST_CASE("every replay draws numbers of its own") {
  const Owned one(adding("one"));
  const auto a = items(), b = items(), c = items(), d = items();
  fill(a, 0);
  const auto generator = c10::make_intrusive<Generator>();
  generator->offset_ = 7;
  const auto graph = begun();
  const auto [seed, first] = graph->draw(generator, 2);
  CHECK(graph->draw(generator, 3) == std::pair<int64_t, int64_t>{seed, first + 2});
  add(one, a, b, first + 1);
  add(one, a, c, first + 2);
  add(one, a, d, seed);
  ocl::end_capture(graph, false);
  CHECK(generator->offset_ == 7);
  for (const int64_t begin : {7, 12}) {
    CHECK(graph->replay() == 0);
    CHECK(value_of(b) == begin + 1);
    CHECK(value_of(c) == begin + 2);
    CHECK(value_of(d) == 1000);
  }
  CHECK(generator->offset_ == 17);
}

TEST_CASE("a driver without memory is given some, and goes on where it was") {
  const Owned one(adding("one"));
  const auto a = items();
  fill(a, 0);
  const auto graph = begun();
  for (int i = 0; i < 3; ++i) CHECK(add(one, a, a, 1) == 0);
  ocl::end_capture(graph, false);
  fake::next_launch_fails = ocl::CL_MEM_OBJECT_ALLOCATION_FAILURE;
  CHECK(graph->replay() == 0);
  CHECK(value_of(a) == 3);
  fake::next_launch_fails = -5;
  CHECK(graph->replay() == ocl::kRefused);
  CHECK(graph->replay() == 0);
  CHECK(value_of(a) == 6);
}

TEST_CASE("the device's thread replays, and a graph may end behind that") {
  ocl_set_submitter(0, 1);
  const Owned one(adding("one"));
  const auto a = items();
  fill(a, 0);
  auto graph = begun();
  CHECK(add(one, a, a, 1) == 0);
  ocl::end_capture(graph, false);
  for (int i = 0; i < 40; ++i) CHECK(graph->replay() == 0);
  ocl::await_submission(0);
  graph.reset();
  CHECK(value_of(a) == 40);
  ocl_set_submitter(0, 0);
}

TEST_CASE("what was made of weights is made again behind a write to them") {
  const auto weights = items();
  fill(weights, 1);
  int made = 0;
  const auto graph = begun();
  const ocl::Addresses at{address(weights)};
  graph->read_kept(at, {nullptr, ocl::writes_to(at)}, [&] { return ++made, 0; });
  ocl::end_capture(graph, false);
  CHECK(graph->replay() == 0);
  CHECK(made == 0);
  fill(weights, 2);
  CHECK(graph->replay() == 0);
  CHECK(graph->replay() == 0);
  CHECK(made == 1);
}

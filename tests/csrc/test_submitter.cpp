// The thread or batches that hand commands to the driver: order, memory, failures, a full ring, its
// end.
#include "runtime/submitter.h"

#include <c10/util/Exception.h>

#include <memory>
#include <thread>

#include "entries.h"
#include "fake_opencl.h"
#include "runtime/profile.h"
#include "runtime/transfer.h"
#include "testing.h"

using namespace tests;

namespace {

constexpr int kThread = 1, kBatches = 2;

// Device 0 has the thread, or submits batches, and its log is empty.
struct On {
  explicit On(int how = kThread) {
    ocl_set_submitter(0, how);
    fake::clear_log();
  }
  ~On() {
    ocl_set_submitter(0, 0);
    CHECK(ocl::drain(0) == ocl::kOk);
  }
};

int hand_over(const Owned& call, const c10::DataPtr& in, const c10::DataPtr& out, int64_t value) {
  const int64_t words[] = {address(in), address(out), value};
  return ocl_enqueue(call.get(), words);
}

// A launch that the driver has taken once.
std::unique_ptr<Owned> accepted(const char* name) {
  auto made = std::make_unique<Owned>(adding(name));
  const auto in = items(), out = items();
  fill(in, 0);
  REQUIRE(hand_over(*made, in, out, 0) == 0);
  fake::clear_log();
  return made;
}

}  // namespace

TEST_CASE("a call returns while the driver is busy, and commands keep their order") {
  const On on;
  const auto one = accepted("one"), two = accepted("two");
  const auto a = items(), b = items(), c = items(), d = items();
  fill(a, 1);
  REQUIRE(ocl::drain(0) == 0);
  auto busy = std::make_unique<fake::Busy>();
  CHECK(hand_over(*one, a, b, 10) == 0);
  fill(a, 1000);
  ocl::copy(c.get(), b.get(), kBytes);
  CHECK(hand_over(*two, a, d, 100) == 0);
  busy.reset();
  CHECK(value_of(b) == 11);
  CHECK(value_of(c) == 11);
  CHECK(value_of(d) == 1100);
  CHECK(fake::log() == std::vector<std::string>{"one", "two"});
}

TEST_CASE("a launch that the driver never took is refused at its call") {
  const On on;
  const Owned fresh(adding("fresh"));
  const auto in = items(), out = items();
  fill(in, 1);
  fake::next_launch_fails = ocl::CL_OUT_OF_RESOURCES;
  CHECK(hand_over(fresh, in, out, 1) == ocl::kRefused);
  CHECK(std::string(ocl_last_error()).find("kernel fresh") != std::string::npos);
  CHECK(hand_over(fresh, in, out, 1) == 0);
  CHECK(value_of(out) == 2);
}

TEST_CASE("what fails in the thread is told of once, by the next call; other commands run") {
  const On on;
  const auto one = accepted("one"), two = accepted("two");
  const auto in = items(), out = items(), last = items();
  fill(in, 1);
  REQUIRE(ocl::drain(0) == 0);
  auto busy = std::make_unique<fake::Busy>();
  fake::next_launch_fails = ocl::CL_OUT_OF_RESOURCES;
  CHECK(hand_over(*one, in, out, 1) == 0);
  CHECK(hand_over(*two, in, last, 5) == 0);
  busy.reset();
  CHECK_THROWS_WITH_AS(ocl::finish(0), doctest::Contains("kernel one"), c10::Error);
  ocl::finish(0);
  CHECK(fake::log() == std::vector<std::string>{"two"});
  CHECK(value_of(last) == 6);
}

TEST_CASE("a call that meets a failure of before is left out") {
  const On on;
  const auto one = accepted("one");
  const auto in = items(), out = items();
  fill(in, 1);
  REQUIRE(ocl::drain(0) == 0);
  fake::next_launch_fails = ocl::CL_OUT_OF_RESOURCES;
  CHECK(hand_over(*one, in, out, 1) == 0);
  while (fake::next_launch_fails) std::this_thread::yield();
  int status = 0;
  while (!(status = hand_over(*one, in, out, 1))) std::this_thread::yield();
  CHECK(status == ocl::kRefused);
  CHECK(hand_over(*one, in, out, 2) == 0);
  CHECK(value_of(out) == 3);
}

TEST_CASE("where the driver lacks memory, the thread that waits empties the cache") {
  const On on;
  const auto one = accepted("one");
  const auto in = items(), out = items();
  fill(in, 1);
  auto unused = ocl::allocate(0, 100000);
  unused.clear();
  REQUIRE(ocl::drain(0) == 0);
  const int before = fake::live_buffers;
  fake::next_launch_fails = ocl::CL_OUT_OF_HOST_MEMORY;
  CHECK(hand_over(*one, in, out, 1) == 0);
  CHECK(value_of(out) == 2);
  CHECK(fake::live_buffers < before);
}

TEST_CASE("a buffer whose command the driver does not have yet is not given back") {
  const On on;
  const auto one = accepted("one");
  auto in = items(), out = items();
  fill(in, 1);
  ocl::empty_cache(0);
  REQUIRE(ocl::drain(0) == 0);
  const int before = fake::live_buffers;
  {
    const fake::Busy busy;
    CHECK(hand_over(*one, in, out, 1) == 0);
    in.clear();
    ocl::empty_cache(0);
    CHECK(fake::live_buffers == before);
  }
  CHECK(value_of(out) == 2);
  ocl::empty_cache(0);
  CHECK(fake::live_buffers == before - 1);
}

TEST_CASE("memory that was freed behind a command serves later ones alone") {
  const On on;
  const auto one = accepted("one"), two = accepted("two");
  auto in = items();
  const auto out = items(), other = items();
  fill(in, 1);
  REQUIRE(ocl::drain(0) == 0);
  auto busy = std::make_unique<fake::Busy>();
  CHECK(hand_over(*one, in, out, 10) == 0);
  const int64_t place = address(in);
  in.clear();
  const auto again = items();
  CHECK(address(again) == place);
  fill(again, 7);
  CHECK(hand_over(*two, again, other, 0) == 0);
  busy.reset();
  CHECK(value_of(out) == 11);
  CHECK(value_of(other) == 7);
}

TEST_CASE("more commands than the ring has room for") {
  const On on;
  const auto one = accepted("one");
  const auto sum = items();
  fill(sum, 0);
  constexpr int64_t kMany = 5000;
  for (int64_t i = 0; i < kMany; ++i) REQUIRE(hand_over(*one, sum, sum, 1) == 0);
  CHECK(value_of(sum) == kMany);
}

TEST_CASE("writes are counted at the call, not when the driver has them") {
  const On on;
  const auto one = accepted("one");
  const auto in = items(), out = items();
  fill(in, 1);
  REQUIRE(ocl::drain(0) == 0);
  const ocl::Block* block = ocl::locate(out.get()).block;
  TORCH_CHECK(block, "memory that is no block's");
  const auto& writes = block->writes;
  const uint64_t before = writes;
  const fake::Busy busy;
  CHECK(hand_over(*one, in, out, 1) == 0);
  CHECK(writes == before + 1);
}

TEST_CASE("a profiler sees commands of its time, in the thread that called") {
  const On on;
  const auto one = accepted("one");
  const auto in = items(), out = items();
  fill(in, 1);
  CHECK(hand_over(*one, in, out, 1) == 0);
  const size_t since = ocl::listen();
  CHECK(hand_over(*one, in, out, 1) == 0);
  CHECK(ocl::stop_listening(since).size() == 1);
}

TEST_CASE("threads hand over commands while others empty the cache and switch the thread") {
  const On on;
  const auto add = accepted("add");
  std::atomic<int> wrong{0}, running{2};
  const auto work = [&] {
    for (int64_t round = 0; round < 200; ++round) {
      const auto in = items(), out = items();
      fill(in, round);
      wrong += hand_over(*add, in, out, 1000 * round) != 0;
      wrong += value_of(out) != 1001 * round;
    }
    --running;
  };
  std::thread first(work), second(work);
  for (int turn = 0; running; ++turn) {
    ocl::empty_cache(0);
    ocl_set_submitter(0, turn % 3);
  }
  first.join();
  second.join();
  CHECK(wrong == 0);
}

TEST_CASE("a batch waits for a call that needs it, or until it is full") {
  const On on(kBatches);
  const auto one = accepted("one"), two = accepted("two");
  const auto a = items(), b = items();
  fill(a, 1);
  CHECK(hand_over(*one, a, b, 10) == 0);
  CHECK(hand_over(*two, b, a, 100) == 0);
  CHECK(fake::log().empty());
  CHECK(value_of(a) == 111);
  CHECK(fake::log().size() >= 2);
  REQUIRE(ocl::drain(0) == 0);
  fake::clear_log();
  for (int count = 0; count < 100; ++count) CHECK(hand_over(*one, a, b, 10) == 0);
  CHECK(fake::log().size() == 96);
  ocl_set_submitter(0, kThread);
  CHECK(fake::log().size() == 100);
}

TEST_CASE("a failure within a batch is told by the next command") {
  const On on(kBatches);
  const auto one = accepted("one");
  const auto a = items(), b = items();
  fill(a, 1);
  REQUIRE(ocl::drain(0) == 0);
  fake::next_launch_fails = ocl::CL_OUT_OF_RESOURCES;
  CHECK(hand_over(*one, a, b, 10) == 0);
  CHECK(ocl::drain(0) != 0);
  CHECK(hand_over(*one, a, b, 10) == 0);
  CHECK(value_of(b) == 11);
}

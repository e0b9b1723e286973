// The chain of launches that are held back.
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "entries.h"
#include "fake_opencl.h"
#include "fusion/held.h"
#include "runtime/transfer.h"
#include "testing.h"

using namespace tests;
using Names = std::vector<std::string>;

namespace {

struct Calls {
  Owned first{held_adding(1, "first", kFirst, 0)};
  Owned second{held_adding(2, "second", kSecond, kFirst)};
};

void enqueue(const Owned& call, const c10::DataPtr& in, const c10::DataPtr& out, int64_t value) {
  const int64_t words[] = {address(in), address(out), value};
  REQUIRE(ocl_enqueue(call.get(), words) == 0);
}

struct Chain {
  Chain() {
    ocl_settle();
    ocl_forget_recalled();
    fake::clear_log();
    fill(in, 1);
    fake::clear_log();
    asked_python = 0;
  }
  // Drops what lies between two launches.
  void run() {
    auto between = items();
    enqueue(calls.first, in, between, 10);
    enqueue(calls.second, between, out, 100);
  }

  Calls calls;
  c10::DataPtr in = items(), out = items();
};

}  // namespace

TEST_CASE("a launch is held back until the next command") {
  Chain chain;
  enqueue(chain.calls.first, chain.in, chain.out, 10);
  CHECK(ocl_is_holding());
  CHECK(fake::log().empty());
  CHECK(value_of(chain.out) == 11);
  CHECK(!ocl_is_holding());
  CHECK(fake::log() == Names{"first"});
}

TEST_CASE("launches run as one if the result between them is dropped") {
  Chain chain;
  chain.run();
  CHECK(fake::log().empty());
  CHECK(value_of(chain.out) == 111);
  CHECK(fake::log() == Names{"fused"});
}

TEST_CASE("a result that is still there is written") {
  Chain chain;
  const auto between = items();
  enqueue(chain.calls.first, chain.in, between, 10);
  enqueue(chain.calls.second, between, chain.out, 100);
  CHECK(value_of(chain.out) == 111);
  CHECK(value_of(between) == 11);
  CHECK(fake::log() == Names{"first", "second"});
  CHECK(asked_python == 0);
}

TEST_CASE("a chain like two others runs without Python, until that is forgotten") {
  Chain chain;
  for (int i = 0; i < 4; ++i) {
    chain.run();
    CHECK(value_of(chain.out) == 111);
  }
  CHECK(asked_python == 2);
  ocl_forget_recalled();
  chain.run();
  CHECK(value_of(chain.out) == 111);
  CHECK(asked_python == 3);
  CHECK(fake::log() == Names(5, "fused"));
}

TEST_CASE("a launch that reads something else ends the chain, which runs first") {
  Chain chain;
  const auto other = items();
  fill(other, 1000);
  enqueue(chain.calls.first, chain.in, chain.out, 10);
  enqueue(chain.calls.second, other, other, 100);
  CHECK(fake::log() == Names{"first"});
  CHECK(value_of(other) == 1100);
  CHECK(fake::log() == Names{"first", "second"});
}

TEST_CASE("a launch that writes what the chain reads ends it") {
  Chain chain;
  auto between = items();
  enqueue(chain.calls.first, chain.in, between, 10);
  enqueue(chain.calls.second, between, chain.in, 100);
  CHECK(fake::log() == Names{"first"});
  CHECK(value_of(chain.in) == 111);
}

TEST_CASE("any other launch lets the chain run first") {
  Chain chain;
  const Owned plain(adding("plain"));
  enqueue(chain.calls.first, chain.in, chain.out, 10);
  const int64_t words[] = {address(chain.out), address(chain.in), 1};
  REQUIRE(ocl_enqueue(plain.get(), words) == 0);
  CHECK(fake::log() == Names{"first", "plain"});
  CHECK(value_of(chain.in) == 12);
}

TEST_CASE("memory of a chain is not handed out again before it has run") {
  Chain chain;
  auto in = std::move(chain.in);
  const void* at = in.get();
  enqueue(chain.calls.first, in, chain.out, 10);
  in.clear();
  std::vector<c10::DataPtr> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(items());
    CHECK(others.back().get() != at);
  }
  fake::clear_log();
  CHECK(value_of(chain.out) == 11);
  others.clear();
  bool is_again = false;
  for (int i = 0; i < 1000 && !is_again; ++i) {
    others.push_back(items());
    is_again = others.back().get() == at;
  }
  CHECK(is_again);
}

TEST_CASE("memory runs out only after what is held has run and freed its own") {
  Chain chain;
  ocl::empty_cache(0);
  auto large = ocl::allocate(0, fake::kDeviceBytes / 2);
  enqueue(chain.calls.first, large, chain.out, 10);
  large.clear();
  CHECK(ocl::allocate(0, fake::kDeviceBytes * 3 / 4).get());
  CHECK(fake::log() == Names{"first"});
  ocl::empty_cache(0);
}

TEST_CASE("a chain may read what an earlier one wrote, though something else holds that, too") {
  Chain chain;
  auto* kept = ocl::hold_block(chain.out.get(), 0);  // as a sequence holds its fixed addresses
  enqueue(chain.calls.first, chain.in, chain.out, 10);
  CHECK(value_of(chain.out) == 11);
  enqueue(chain.calls.first, chain.out, chain.in, 10);
  CHECK(ocl_is_holding());
  CHECK(value_of(chain.in) == 21);
  ocl::let_go_block(kept);
}

TEST_CASE("a failure names the operator that was held back, and the rest of the chain is lost") {
  Chain chain;
  auto between = items();
  const auto kept = items();
  enqueue(chain.calls.first, chain.in, kept, 10);
  enqueue(chain.calls.second, kept, chain.out, 100);
  fake::next_launch_fails = -54;
  CHECK_THROWS_WITH(ocl::settle_held(), doctest::Contains("second was held back until now"));
  CHECK(!ocl_is_holding());
  CHECK(fake::log().empty());
  fill(chain.out, 3);
  CHECK(value_of(chain.out) == 3);
}

TEST_CASE("an interrupt that was met already, or is met meanwhile, comes behind the launches") {
  static int waiting = 0, met = 0;
  ocl_interrupt_with([] { ++met; }, nullptr);
  ocl_take_interrupts_with([] { return 0; }, [](int) {}, [] { return std::exchange(waiting, 0); },
                           [](void**, void**, void**) {}, [](void*, void*, void*) {});
  for (const bool meanwhile : {false, true}) {
    Chain chain;
    chain.run();
    waiting = !meanwhile;
    next_fusion_is_interrupted = meanwhile;
    met = 0;
    CHECK(ocl_settle() == 0);
    CHECK(met == 1);
    CHECK(waiting == 0);
    CHECK(value_of(chain.out) == 111);
    CHECK(met == 1);
  }
  ocl_take_interrupts_with(nullptr, nullptr, nullptr, nullptr, nullptr);
}

TEST_CASE("a call of Python that an exception left is no success") {
  Chain chain;
  chain.run();
  next_fusion_is_left = true;
  CHECK(ocl_settle() == ocl::kInterrupted);
  CHECK(!ocl_is_holding());
  chain.run();
  CHECK(value_of(chain.out) == 111);
}

TEST_CASE("what Python fails with is told as its text, and learnt is nothing") {
  Chain chain;
  chain.run();
  next_fusion_fails = ocl::kPython + ocl::kOutOfMemory;
  CHECK(ocl_settle() == ocl::kPython + ocl::kOutOfMemory);
  CHECK(std::string(ocl_last_error()) == "the fake Python failed\nsecond was held back until now");
  CHECK_THROWS_AS(ocl::raise(ocl::kPython + ocl::kOutOfMemory), c10::OutOfMemoryError);
  for (int i = 0; i < 3; ++i) {
    chain.run();
    CHECK(value_of(chain.out) == 111);
  }
  CHECK(asked_python == 3);
}

TEST_CASE("a rule that wants to be asked is asked, alone and always") {
  Chain chain;
  const Owned asked(held_adding(3, "asked", kFirst, 0, true));
  for (int i = 1; i < 5; ++i) {
    enqueue(asked, chain.in, chain.out, 10);
    CHECK(value_of(chain.out) == 11);
    CHECK(asked_python == i);
  }
}

TEST_CASE("with fusion off, launches run at once") {
  Chain chain;
  ocl_set_fusion(0);
  enqueue(chain.calls.first, chain.in, chain.out, 10);
  CHECK(!ocl_is_holding());
  CHECK(fake::log() == Names{"first"});
  ocl_set_fusion(1);
}

TEST_CASE("a rule is let go when neither Python, the chain nor a recipe has its call") {
  while (ocl_held_gone()) continue;
  std::optional<Chain> chain(std::in_place);
  const c10::DataPtr in = items(), out = items();
  {
    const Owned call(held_adding(77, "short-lived", kFirst, 0));
    enqueue(call, in, out, 1);
  }
  CHECK(ocl_held_gone() == 0);
  ocl_settle();
  CHECK(ocl_held_gone() == 77);
  CHECK(ocl_held_gone() == 0);
}

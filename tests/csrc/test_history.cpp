// What happens to memory is told to Python, whose lock another thread may have, waiting for one of
// ours.
#include <chrono>
#include <functional>
#include <future>

#include "entries.h"
#include "fake_opencl.h"
#include "fusion/recipe.h"
#include "runtime/history.h"
#include "testing.h"

using namespace tests;

namespace {

std::function<bool()> attempt;          // what another thread does meanwhile; whether it could
std::vector<std::future<bool>> others;  // those threads
int told = 0, waited = 0;

void tell(int event, int, int64_t, int64_t) {
  if (event != int(ocl::MemoryEvent::kFree) && event != int(ocl::MemoryEvent::kSegmentFree)) return;
  ++told;
  others.push_back(std::async(std::launch::async, attempt));
  waited += others.back().wait_for(std::chrono::seconds(1)) != std::future_status::ready;
}

// Listens as long as it exists.
struct Listening {
  explicit Listening(std::function<bool()> of_another) {
    attempt = std::move(of_another);
    told = waited = 0;
    ocl_listen_to_memory(tell);
  }
  ~Listening() {
    ocl_listen_to_memory(nullptr);
    others.clear();
  }
};

// Stands for a sequence that keeps what it made of weights.
struct Keeping final : ocl::Prepared {
  int enqueue(const int64_t*) override { return ocl::kOk; }
  c10::DataPtr memory = items();
};

ocl::Recipe keeping() {
  ocl::Recipe recipe;
  recipe.steps.push_back({std::make_shared<Keeping>(), {}});
  return recipe;
}

}  // namespace

TEST_CASE("a launch that makes room for itself tells of it without the lock of launches") {
  const Owned add(adding("add"));
  const auto in = items(), out = items();
  fill(in, 1);
  ocl::allocate(0, 5000).clear();
  const Listening listening([] {
    auto& mutex = ocl::device_at(0).submission;
    if (!mutex.try_lock()) return false;
    mutex.unlock();
    return true;
  });
  fake::next_launch_fails = ocl::CL_MEM_OBJECT_ALLOCATION_FAILURE;
  const int64_t words[] = {address(in), address(out), 10};
  REQUIRE(ocl_enqueue(add.get(), words) == 0);
  CHECK(told > 0);
  for (auto& other : others) CHECK(other.get());
  CHECK(value_of(out) == 11);
}

TEST_CASE("recipes that go tell of their memory without the lock of recipes") {
  ocl::Memory memory;
  ocl::Key key;
  key.add({1});
  const auto learn = [&] {
    const ocl::Recipe recipe = keeping();
    memory.learn(key, &recipe, memory.look_up(key).asked);
  };
  learn();
  const Listening listening([&] { return !memory.look_up(key).hopeless; });
  learn();  // in place of the first
  CHECK(told == 1);
  ocl::forget_recalled();
  CHECK(told == 2);
  CHECK(waited == 0);
}

// Commands that wait for programs: their order, their memory, what fails and what is interrupted.
#include <c10/util/Exception.h>

#include <map>
#include <thread>

#include "entries.h"
#include "fake_opencl.h"
#include "runtime/deferred.h"
#include "runtime/python_error.h"
#include "runtime/transfer.h"
#include "testing.h"

using namespace tests;

namespace {

using Log = std::vector<std::string>;

int interrupts = 0;  // stands for `KeyboardInterrupt`

// What stands for Python: by number, what makes a launch ready or fails.
std::map<int64_t, std::function<int()>>& completers() {
  static std::map<int64_t, std::function<int()>> all;
  return all;
}

constexpr int kLeft = -1;  // an exception leaves the call

void complete(int64_t number, int* told) {
  const int status = completers().at(number)();
  if (status) ocl_python_failed("the fake compiler failed");
  if (status != kLeft) *told = status;
}

struct Python {
  Python() {
    ocl_complete_with(complete);
    ocl_interrupt_with([] {}, &interrupts);
    fake::clear_log();
  }
  ~Python() {
    ocl_drop_deferred();
    completers().clear();
  }
};

// A launch as `adding`, whose program is built when it is waited for, unless that fails.
void* pending(int64_t number, const char* name, int status = 0) {
  const size_t global[] = {kItems};
  const int32_t kinds[] = {0, 0, 2}, indices[] = {0, 2, 4}, item_bytes[] = {8, 8, 0};
  void* made = ocl_launch_new(0, nullptr, number, name, 1, global, nullptr, 3, kinds, indices,
                              item_bytes, 0, nullptr, nullptr, nullptr);
  completers()[number] = [made, name, status] {
    if (status) return status;
    void* kernel = ocl_kernel_new(nullptr, name);
    const int refused = ocl_launch_complete(made, kernel);
    ocl_kernel_delete(kernel);
    return refused;
  };
  return made;
}

int run(const Owned& call, const c10::DataPtr& in, const c10::DataPtr& out, int64_t value) {
  const int64_t words[] = {address(in), address(out), value};
  return ocl_enqueue(call.get(), words);
}

// A sequence of one launch, whose words are its caller's.
void* sequence_of(const Owned& launch) {
  void* handles[] = {launch.get()};
  const uint32_t lengths[] = {3}, places[] = {0, 1, 2};
  return ocl_sequence_new(0, 3, 0, nullptr, 0, nullptr, 1, handles, lengths, places, 0);
}

}  // namespace

TEST_CASE("what is enqueued behind a launch without a program waits, and keeps its order") {
  const Python python;
  const Owned late(pending(1, "late")), ready(adding("ready"));
  const auto a = items(), b = items(), c = items();
  fill(a, 1);
  CHECK(run(late, a, b, 10) == 0);
  CHECK(run(ready, b, c, 100) == 0);
  fill(a, 1000);  // a write that waits, too: the first launch reads what was there before
  CHECK(fake::log().empty());
  CHECK(value_of(c) == 111);
  CHECK(value_of(a) == 1000);
  CHECK(fake::log() == Log{"late", "ready"});
  CHECK(run(late, a, b, 10) == 0);
  CHECK(fake::log() == Log{"late", "ready", "late"});
}

TEST_CASE("large writes wait behind a launch, until their copies would take too much memory") {
  const Python python;
  const Owned late(pending(1, "late"));
  const auto a = items(), b = items();
  fill(a, 1);
  constexpr size_t kLarge = size_t(32) << 20, kMost = size_t(256) << 20;
  const auto large = ocl::allocate(0, kLarge);
  std::vector<char> bytes(kLarge);
  CHECK(run(late, a, b, 10) == 0);
  for (size_t copies = 1; copies <= kMost / kLarge + 1; ++copies) {
    std::fill(bytes.begin(), bytes.end(), char(copies));
    ocl::write(large.get(), bytes.data(), kLarge, false);
    if (copies < kMost / kLarge) CHECK(fake::log().empty());
  }
  CHECK(fake::log() == Log{"late"});
  std::fill(bytes.begin(), bytes.end(), 0);
  ocl::read(bytes.data(), large.get(), kLarge);
  CHECK(bytes[0] == char(kMost / kLarge + 1));
}

TEST_CASE("memory that is freed behind a waiting launch serves later ones alone") {
  const Python python;
  const Owned late(pending(1, "late")), ready(adding("ready"));
  auto a = items();
  const auto out = items(), other = items();
  fill(a, 1);
  CHECK(run(late, a, out, 10) == 0);
  const int64_t place = address(a);
  a.clear();
  const auto again = items();
  CHECK(address(again) == place);
  fill(again, 7);
  CHECK(run(ready, again, other, 0) == 0);
  CHECK(value_of(out) == 11);
  CHECK(value_of(other) == 7);
}

TEST_CASE("a buffer that a waiting launch uses is not given back to the driver") {
  const Python python;
  const Owned late(pending(1, "late"));
  auto a = items(), out = items();
  fill(a, 1);
  ocl::empty_cache(0);
  CHECK(run(late, a, out, 10) == 0);
  a.clear();
  const int before = fake::live_buffers;
  ocl::empty_cache(0);
  CHECK(fake::live_buffers == before);
  CHECK(value_of(out) == 11);
  ocl::empty_cache(0);
  CHECK(fake::live_buffers == before - 1);
}

TEST_CASE("a launch that fails is left out and told of once; the others run") {
  const Python python;
  const Owned broken(pending(1, "broken", ocl::kFailed)), ready(adding("ready"));
  const auto a = items(), b = items(), c = items();
  fill(a, 1);
  {
    const ocl::Named named("aten::broken");
    CHECK(run(broken, a, b, 10) == 0);
  }
  CHECK(run(ready, a, c, 100) == 0);
  CHECK_THROWS_WITH_AS(
      ocl::finish(0),
      doctest::Contains("the fake compiler failed\naten::broken waited for its program"),
      c10::Error);
  CHECK(value_of(c) == 101);
  CHECK(fake::log() == Log{"ready"});
}

TEST_CASE("a wait that is interrupted leaves everything in its place") {
  const Python python;
  const Owned late(pending(1, "late"));
  const auto made = completers()[1];
  completers()[1] = [] { return ocl::kPython + ocl::kInterrupted; };
  const auto a = items(), b = items();
  fill(a, 1);
  CHECK(run(late, a, b, 10) == 0);
  CHECK(ocl_wait_for_programs(0) == ocl::kPython + ocl::kInterrupted);
  try {
    ocl::finish(0);
    FAIL("nothing was raised");
  } catch (torch::PyTorchError& error) {
    CHECK(error.python_type() == reinterpret_cast<_object*>(&interrupts));
  }
  completers()[1] = [] { return kLeft; };
  CHECK(ocl_wait_for_programs(0) == ocl::kInterrupted);
  completers()[1] = made;
  CHECK(value_of(b) == 11);
}

TEST_CASE("an address that is wrong is told of at once") {
  const Python python;
  const Owned late(pending(1, "late"));
  const auto a = items();
  const int64_t host = 8, words[] = {address(a), host, 0}, odd[] = {address(a) + 1, address(a), 0};
  CHECK(ocl_enqueue(late.get(), words) == ocl::kFailed);
  CHECK(std::string(ocl_last_error()).find("argument 2: not memory") != std::string::npos);
  CHECK(ocl_enqueue(late.get(), odd) == ocl::kFailed);
  CHECK(ocl_wait_for_programs(0) == 0);
}

TEST_CASE("another sequence takes the place of one that cannot be built") {
  const Python python;
  const Owned broken(pending(1, "broken", ocl::kFailed)), other(adding("other"));
  const Owned sequence(sequence_of(broken)), instead(sequence_of(other));
  ocl_sequence_await(sequence.get(), 2);
  completers()[2] = [&] {
    ocl_sequence_replace(sequence.get(), instead.get());
    return 0;
  };
  const auto a = items(), b = items();
  fill(a, 1);
  CHECK(run(sequence, a, b, 10) == 0);
  CHECK(run(sequence, b, b, 100) == 0);
  CHECK(value_of(b) == 111);
  CHECK(fake::log() == Log{"other", "other"});
}

TEST_CASE("what completes a launch may launch, on memory that nothing else uses") {
  const Python python;
  const Owned late(pending(1, "late")), meanwhile(adding("meanwhile")), ready(adding("ready"));
  const auto made = completers()[1];
  const auto a = items(), b = items(), c = items();
  auto freed = items();
  completers()[1] = [&] {
    const auto own = items(), result = items();
    CHECK(run(meanwhile, own, result, 5) == 0);
    return made();
  };
  fill(a, 1);
  fill(freed, 30);
  CHECK(run(late, a, b, 10) == 0);
  CHECK(run(ready, freed, c, 0) == 0);
  freed.clear();  // the launch above reads it yet
  CHECK(value_of(c) == 30);
  CHECK(value_of(b) == 11);
  CHECK(fake::log() == Log{"meanwhile", "late", "ready"});
}

TEST_CASE("a loop that asks for no value waits in the end") {
  const Python python;
  const Owned late(pending(1, "late"));
  const auto a = items();
  fill(a, 0);
  for (int i = 0; i < 5000; ++i) CHECK(run(late, a, a, 1) == 0);
  CHECK_FALSE(fake::log().empty());
  CHECK(value_of(a) == 5000);
}

TEST_CASE("threads enqueue and wait at once, each in its own order") {
  const Python python;
  std::atomic<int> wrong{0};
  std::vector<Owned*> calls;
  for (int64_t number = 1; number <= 4; ++number)
    calls.push_back(new Owned(pending(number, "late")));
  const auto work = [&](const Owned& call) {
    for (int64_t round = 0; round < 100; ++round) {
      const auto a = items(), b = items();
      fill(a, round);
      wrong += run(call, a, b, 10) != 0;
      wrong += run(call, b, b, 100) != 0;
      if (round % 7 == 0) wrong += value_of(b) != round + 110;
      if (round % 11 == 0) ocl::empty_cache(0);
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(calls.size());
  for (const Owned* call : calls) threads.emplace_back([&work, call] { work(*call); });
  for (auto& thread : threads) thread.join();
  ocl::finish(0);
  for (const Owned* call : calls) delete call;
  CHECK(wrong == 0);
}

// What several threads do at once. Run with ThreadSanitizer, these find races and lock orders.
#include <c10/util/Exception.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "entries.h"
#include "fake_opencl.h"
#include "fusion/held.h"
#include "fusion/recipe.h"
#include "runtime/profile.h"
#include "runtime/transfer.h"
#include "testing.h"

using namespace tests;

namespace {

constexpr int kRounds = 200;

// Runs every function in a thread of its own, all from the same moment on.
void at_once(const std::vector<std::function<void()>>& functions) {
  std::atomic<size_t> waiting{functions.size()};
  std::vector<std::thread> threads;
  threads.reserve(functions.size());
  for (const auto& function : functions)
    threads.emplace_back([&] {
      --waiting;
      while (waiting) std::this_thread::yield();
      function();
    });
  for (auto& thread : threads) thread.join();
}

bool is_enqueued(const Owned& call, const c10::DataPtr& in, const c10::DataPtr& out,
                 int64_t value) {
  const int64_t words[] = {address(in), address(out), value, 0};
  return ocl_enqueue(call.get(), words) == 0;
}

// Chains of one thread; `wrong` counts results that are not what the thread alone would get.
void run_chains(std::atomic<int>& wrong) {
  const Owned first(held_adding(1, "first", kFirst, 0));
  const Owned second(held_adding(2, "second", kSecond, kFirst));
  for (int64_t round = 0; round < kRounds; ++round) {
    const auto in = items(), out = items();
    fill(in, round);
    auto between = items();
    wrong += !is_enqueued(first, in, between, 10);
    wrong += !is_enqueued(second, between, out, 100);
    between.clear();
    wrong += value_of(out) != round + 110;
  }
}

void enqueue_chains_while_others_meddle() {
  std::atomic<int> wrong{0}, running{2};
  const auto chains = [&] {
    run_chains(wrong);
    --running;
  };
  const auto meanwhile = [&](const std::function<void()>& act) {
    return [&running, act] {
      while (running) act();
    };
  };
  at_once({chains, chains, meanwhile([] { ocl_forget_recalled(); }),
           meanwhile([] { ocl_settle(); }), meanwhile([] { ocl::allocate(0, 100000).clear(); }),
           meanwhile([] { ocl::empty_cache(0); }), meanwhile([] {
             while (ocl_held_gone()) continue;
           }),
           meanwhile([] { ocl::stop_listening(ocl::listen()); })});
  CHECK(wrong == 0);
  CHECK(!ocl_is_holding());
}

}  // namespace

TEST_CASE("threads enqueue chains while others forget, settle, allocate and listen") {
  enqueue_chains_while_others_meddle();
}

TEST_CASE("the same where a thread of the device hands them to the driver") {
  ocl_set_submitter(0, 1);
  enqueue_chains_while_others_meddle();
  ocl_set_submitter(0, 0);
}

TEST_CASE("one launch serves several threads: its arguments and its enqueueing are one step") {
  const Owned add(adding("add"));
  std::atomic<int> wrong{0};
  const auto work = [&] {
    const auto in = items(), out = items();
    for (int64_t round = 0; round < kRounds; ++round) {
      fill(in, round);
      const int64_t words[] = {address(in), address(out), 1000 * round};
      wrong += ocl_enqueue(add.get(), words) != 0;
      wrong += value_of(out) != 1001 * round;
    }
  };
  at_once({work, work, work});
  CHECK(wrong == 0);
}

TEST_CASE("threads learn, repeat and forget one memory at once") {
  ocl::Memory memory;
  const Owned add(adding("add"));
  std::atomic<int> wrong{0}, running{2};
  const auto work = [&] {
    const auto in = items(), out = items();
    ocl::Key key;
    key.add_operand(address(in));
    key.add_operand(address(out));
    for (int64_t round = 0; round < kRounds; ++round) {
      fill(in, round);
      const int64_t words[] = {address(in), address(out), 10};
      const auto status = ocl::repeat_or_learn(
          memory, key, 0, [](const ocl::Recipe&, auto&, int failed) { return failed; },
          [&](bool) { return ocl::enqueue(add.shared(), words); },
          [](ocl::Writer&, int64_t failed) { return !failed; });
      wrong += status != 0 || value_of(out) != round + 10;
    }
    --running;
  };
  at_once({work, work, [&] {
             while (running) ocl::forget_recalled();
           }});
  CHECK(wrong == 0);
}

namespace {

// The interpreter's lock: a thread that runs Python has it.
std::mutex interpreter;
thread_local bool has_it = false;

void take_interpreter(void*) {
  interpreter.lock();
  has_it = true;
}

void* let_interpreter() {
  has_it = false;
  interpreter.unlock();
  return &interpreter;
}

void run_as_python(const int64_t* words, int64_t, int64_t* ran) {
  const bool had_it = has_it;
  if (!had_it) take_interpreter(nullptr);
  // another thread may run Python meanwhile, and enqueue
  let_interpreter();
  std::this_thread::yield();
  take_interpreter(nullptr);
  static const auto* alone = new Owned(adding("alone"));
  const int status = ocl_enqueue(alone->get(), words + 3);
  if (!had_it) let_interpreter();
  *ran = status ? -status : 1;
}

}  // namespace

TEST_CASE("a thread that waits for the chain lets go of the interpreter") {
  ocl_settle();
  ocl_hold_with(run_as_python, [] { return int(has_it); }, let_interpreter, take_interpreter);
  std::atomic<int> wrong{0};
  const auto work = [&] {
    const Owned call(held_adding(5, "asked", kFirst, 0, true));
    const auto in = items(), out = items();
    for (int64_t round = 0; round < kRounds; ++round) {
      fill(in, round);
      take_interpreter(nullptr);
      wrong += !is_enqueued(call, in, out, 1);
      if (round % 2) wrong += ocl_settle() != 0;
      let_interpreter();
      wrong += value_of(out) != round + 1;
    }
  };
  at_once({work, work, work});
  ocl_settle();
  serve_chains();
  CHECK(wrong == 0);
}

namespace {

std::mutex import_lock;
int openings = 0;

void open_once() {
  const std::lock_guard<std::mutex> lock(import_lock);
  ocl_set_opening_status(0, "");
  if (openings++ == 0) {
    ocl_set_opening_status(1, "the first try fails");
    return;
  }
  if (ocl::is_closed()) ocl_add_device(nullptr, nullptr, "late", fake::kDeviceBytes, 0, 1);
  ocl_open_later(nullptr, 0);
}

}  // namespace

TEST_CASE("threads that use the devices first open them once") {
  const int before = ocl::device_count();
  ocl_open_later(open_once, before + 1);
  std::atomic<int> failed{0}, counted{0};
  const auto use = [&] {
    for (int i = 0; i < 3; ++i) try {
        ocl::ensure_open();
        counted += ocl::device_count() == before + 1;
      } catch (const c10::Error&) {
        ++failed;
      }
  };
  at_once({use, use, use, use});
  CHECK(failed == 1);
  CHECK(counted == 11);
}

TEST_CASE("a forked child does not wait for what a thread of its parent had locked") {
  ocl::Memory memory;
  ocl::Key key;
  key.add({1});
  std::atomic<bool> is_over{false};
  std::thread forgetting([&] {
    while (!is_over) ocl::forget_recalled();
  });
  int stuck = 0;
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // seconds
      _exit(memory.look_up(key).hopeless ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    stuck += status != 0;
  }
  is_over = true;
  forgetting.join();
  CHECK(stuck == 0);
}

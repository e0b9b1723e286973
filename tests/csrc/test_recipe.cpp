// Recipes: written from notes, performed for other operands, remembered and forgotten.
#include <c10/util/Exception.h>

#include "entries.h"
#include "fake_opencl.h"
#include "fusion/held.h"
#include "fusion/recipe.h"
#include "testing.h"

using namespace tests;

namespace {

const Owned& add() {
  static const auto* made = new Owned(adding("add"));
  return *made;
}

void enqueue_add(int64_t in, int64_t out, int64_t value) {
  const int64_t words[] = {in, out, value};
  REQUIRE(ocl::enqueue(add().shared(), words) == 0);
}

ocl::Key key_of(std::initializer_list<int64_t> operands) {
  ocl::Key key;
  for (const int64_t operand : operands) key.add_operand(operand);
  return key;
}

// A call: out = in + 1 + 10, with a workspace in between.
void call(int64_t in, int64_t out) {
  const auto space = items();
  enqueue_add(in, address(space), 1);
  enqueue_add(address(space), out, 10);
}

ocl::Recipe written(const ocl::Key& key, int64_t in, int64_t out) {
  const ocl::Noting noting;
  call(in, out);
  ocl::Writer writer(0, key, noting);
  REQUIRE(writer.add_steps());
  return writer.recipe;
}

ocl::Key numbered(int64_t number, size_t length = 1) {
  ocl::Key key;
  for (size_t i = 0; i < length; ++i) key.add({number});
  return key;
}

// A generator as a device has one.
struct Counting final : c10::GeneratorImpl {
  Counting() : c10::GeneratorImpl(c10::kCPU, {}) {}
  void set_current_seed(uint64_t value) override { seed_ = value; }
  uint64_t current_seed() const override { return seed_; }
  void set_offset(uint64_t value) override { offset_ = value; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t seed() override { return seed_; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return {}; }
  c10::GeneratorImpl* clone_impl() const override { return new Counting; }

  uint64_t seed_ = 1, offset_ = 0;
};

}  // namespace

TEST_CASE("a recipe does for other operands what the call did") {
  const auto in = items(), out = items(), other_in = items(), other_out = items();
  const auto key = key_of({address(in), address(out)});
  const auto recipe = written(key, address(in), address(out));
  REQUIRE(recipe.spaces.size() == 1);
  CHECK((recipe.spaces[0] == ocl::Space{kBytes, 0, 1}));
  REQUIRE(recipe.steps.size() == 2);
  CHECK((recipe.steps[0].words == std::vector<ocl::Word>{{0, 0}, {2, 0}, {-1, 1}}));
  CHECK((recipe.steps[1].words == std::vector<ocl::Word>{{2, 0}, {1, 0}, {-1, 10}}));
  fill(other_in, 100);
  ocl::Allocations spaces;
  CHECK(ocl::perform(recipe, {address(other_in), address(other_out)}, 0, spaces) == 0);
  CHECK(!spaces[0].get());  // freed behind the step that used it last
  CHECK(value_of(other_out) == 111);
}

TEST_CASE("the same call makes the same recipe, another one another") {
  const auto in = items(), out = items();
  const auto key = key_of({address(in), address(out)});
  const auto recipe = written(key, address(in), address(out));
  CHECK(ocl::confirmed(recipe, written(key, address(in), address(out))));
  CHECK(!ocl::confirmed(recipe, written(key, address(out), address(in))));
}

TEST_CASE("a recipe takes counters of the generator that its call took them of") {
  const auto in = items(), out = items();
  const auto key = key_of({address(in), address(out)});
  Counting generator;
  const auto drawn = [&](int64_t more) {  // out = in + more + the first counter
    const ocl::Noting noting;
    ocl::note_drawn({&generator, generator.current_seed(), generator.get_offset(), 4});
    enqueue_add(address(in), address(out), int64_t(generator.get_offset()));
    enqueue_add(address(out), address(out), more);
    generator.set_offset(generator.get_offset() + 4);
    ocl::Writer writer(0, key, noting);
    REQUIRE(writer.add_steps());
    return writer.recipe;
  };
  const auto from_0 = drawn(4), from_4 = drawn(4);
  CHECK(!ocl::confirmed(from_0, from_0));  // which words are the counter is not known
  const auto sure = ocl::confirmed(from_0, from_4);
  REQUIRE(sure);
  fill(in, 100);
  const auto counter = ocl::take(sure->drawn);
  CHECK(counter.value_or(0) == 8);
  ocl::Allocations spaces;
  CHECK(ocl::perform(*sure, key.operands, counter.value_or(0), spaces) == 0);
  CHECK(value_of(out) == 112);
  CHECK(generator.get_offset() == 12);
  generator.set_current_seed(2);
  CHECK(!ocl::take(sure->drawn));
}

TEST_CASE("a call that another recipe serves in part is noted with what that draws") {
  Counting generator;
  generator.set_offset(8);
  const ocl::Noting noting;
  REQUIRE(ocl::take({&generator, 1, 0, 4}).value_or(0) == 8);
  CHECK(noting.drawn.generator == &generator);
  CHECK(noting.drawn.first == 8);
  CHECK(noting.drawn.count == 4);
  CHECK(noting.complete);
}

TEST_CASE("a call that draws twice makes no recipe") {
  const auto in = items();
  Counting generator;
  const ocl::Noting noting;
  ocl::note_drawn({&generator, 0, 0, 4});
  CHECK(ocl::Writer(0, key_of({address(in)}), noting).add_steps());
  ocl::note_drawn({&generator, 0, 4, 4});
  CHECK(!ocl::Writer(0, key_of({address(in)}), noting).add_steps());
}

TEST_CASE("what reads memory of unknown origin, or is no launch, makes no recipe") {
  const auto in = items(), out = items(), unknown = items();
  const auto key = key_of({address(in), address(out)});
  {
    const ocl::Noting noting;
    enqueue_add(address(unknown), address(out), 0);
    CHECK(!ocl::Writer(0, key, noting).add_steps());
  }
  {
    const ocl::Noting noting;
    enqueue_add(address(in), address(out), 0);
    value_of(out);
    CHECK(!ocl::Writer(0, key, noting).add_steps());
  }
  {
    const ocl::Noting noting;
    {
      const ocl::Unnoted unnoted;
      value_of(out);
    }
    CHECK(ocl::Writer(0, key, noting).add_steps());
  }
}

TEST_CASE("a step that fails ends the recipe, and its workspaces are freed") {
  const auto in = items(), out = items();
  const auto key = key_of({address(in), address(out)});
  const auto recipe = written(key, address(in), address(out));
  fake::next_launch_fails = -54;
  {
    ocl::Allocations spaces;
    CHECK(ocl::perform(recipe, key.operands, 0, spaces) == ocl::kRefused);
  }
  CHECK_THROWS_WITH(ocl::raise(ocl::kRefused), doctest::Contains("CL_INVALID_WORK_GROUP_SIZE"));
}

TEST_CASE("keys tell alignment and overlap, however many operands there are") {
  for (const size_t count : {2, 100}) {
    ocl::Allocations memory;
    ocl::Key key, same, shifted, beside;
    for (size_t i = 0; i < count; ++i) {
      memory.push_back(items());
      const int64_t at = address(memory.back());
      CHECK(!key.add_operand(at));
      CHECK(!same.add_operand(at));
      CHECK(!shifted.add_operand(at + 8));
      beside.add_operand(at);
    }
    CHECK(key.numbers == same.numbers);
    CHECK(key.numbers != shifted.numbers);
    CHECK(beside.add_operand(address(memory[1]) + 8));
    CHECK(*(beside.numbers.end() - 2) == 8 + 128 * 1);  // aligned so, beside the operand 1,
    CHECK(beside.numbers.back() == 8);  // 8 bytes behind it
  }
}

TEST_CASE("two calls in a row that do the same are enough to know it") {
  ocl::Memory memory;
  const auto key = numbered(1);
  ocl::Recipe recipe, other;
  other.outcome = 1;
  const auto asked = memory.look_up(key).asked;
  memory.learn(key, &recipe, asked);
  CHECK(!memory.look_up(key).recipe);
  memory.learn(key, &other, asked);
  CHECK(!memory.look_up(key).recipe);
  memory.learn(key, &other, asked);
  REQUIRE(memory.look_up(key).recipe);
  CHECK(memory.look_up(key).recipe->outcome == 1);
  CHECK(!memory.look_up(numbered(2)).recipe);
}

TEST_CASE("keys are known whose numbers are beyond 32 bits, too") {
  constexpr int64_t kLarge = 0x100'0000'0000;
  ocl::Memory memory;
  const ocl::Recipe recipe;
  for (const int64_t number : {kLarge + 1, -kLarge, int64_t(-1)})
    for (int i = 0; i < 2; ++i)
      memory.learn(numbered(number, 3), &recipe, memory.look_up(numbered(number, 3)).asked);
  for (const int64_t number : {kLarge + 1, -kLarge, int64_t(-1)})
    CHECK(memory.look_up(numbered(number, 3)).recipe);
  CHECK(!memory.look_up(numbered(1, 3)).recipe);
}

TEST_CASE("a call that always does something else is hopeless after eight tries") {
  ocl::Memory memory;
  const auto key = numbered(1);
  for (int i = 0; i < 8; ++i) {
    CHECK(!memory.look_up(key).hopeless);
    memory.learn(key, nullptr, memory.look_up(key).asked);
  }
  CHECK(memory.look_up(key).hopeless);
}

TEST_CASE("what is forgotten while a call runs is not learnt from it") {
  ocl::Memory memory;
  const auto key = numbered(1);
  const ocl::Recipe recipe;
  const auto asked = memory.look_up(key).asked;
  memory.learn(key, &recipe, asked);
  ocl::forget_recalled();
  memory.learn(key, &recipe, asked);
  memory.learn(key, &recipe, asked);
  CHECK(!memory.look_up(key).recipe);
  const auto again = memory.look_up(key).asked;
  memory.learn(key, &recipe, again);
  memory.learn(key, &recipe, again);
  CHECK(memory.look_up(key).recipe);
  ocl::forget_recalled();
  CHECK(!memory.look_up(key).recipe);
}

TEST_CASE("nothing is recalled while recall is suspended") {
  ocl::Memory memory;
  const auto key = numbered(1);
  const ocl::Recipe recipe;
  for (int i = 0; i < 2; ++i) memory.learn(key, &recipe, memory.look_up(key).asked);
  ocl_suspend_recall(1);
  ocl_suspend_recall(1);
  ocl_suspend_recall(-1);
  CHECK(ocl::Memory::is_suspended());
  CHECK(!memory.look_up(key).recipe);
  CHECK(memory.look_up(key).hopeless);
  ocl_suspend_recall(-1);
  CHECK(memory.look_up(key).recipe);
}

TEST_CASE("where all memories keep too much, what was not used for longest goes") {
  constexpr size_t kLength = size_t(1) << 13;  // 2048 such keys of small numbers are 64 MiB
  ocl::Memory memory, other;
  const ocl::Recipe recipe;
  const auto learn = [&](ocl::Memory& at, int64_t number) {
    const auto key = numbered(number, kLength);
    for (int i = 0; i < 2; ++i) at.learn(key, &recipe, at.look_up(key).asked);
  };
  const auto knows = [](const ocl::Memory& at, int64_t number) {
    return at.look_up(numbered(number, kLength)).recipe != nullptr;
  };
  learn(other, 1);
  for (int64_t number = 0; number < 1900; ++number) learn(memory, number);
  CHECK(knows(memory, 0));  // from here on the youngest
  for (int64_t number = 1900; number < 2100; ++number) learn(memory, number);
  CHECK(knows(memory, 0));
  CHECK(knows(memory, 2099));
  CHECK(!knows(memory, 1));
  CHECK(!knows(other, 1));
  learn(memory, 1);
  CHECK(knows(memory, 1));
}

TEST_CASE("of keys that were all used last, a quarter goes, too") {
  constexpr size_t kLength = size_t(1) << 13;  // 2048 such keys of small numbers are 64 MiB
  constexpr int64_t kKeys = 1900;
  const ocl::Recipe recipe;
  const auto fill = [&](ocl::Memory& memory) {
    for (int64_t number = 0; number < kKeys; ++number) {
      const auto key = numbered(number, kLength);
      for (int i = 0; i < 2; ++i) memory.learn(key, &recipe, memory.look_up(key).asked);
    }
  };
  const auto count = [&](const ocl::Memory& memory) {  // each lookup makes its key a youngest one
    int64_t known = 0;
    for (int64_t number = 0; number < kKeys; ++number)
      known += memory.look_up(numbered(number, kLength)).recipe != nullptr;
    return known;
  };
  ocl::Memory memory;
  {
    ocl::Memory gone;
    fill(gone);
  }
  fill(memory);
  CHECK(count(memory) == kKeys);  // a memory that is gone takes no room
  const auto large = numbered(kKeys, kLength * kLength / 32);  // 8 MiB
  memory.learn(large, &recipe, memory.look_up(large).asked);
  CHECK(count(memory) == kKeys - (kKeys + 1) / 4);
}

TEST_CASE("one call is enough where sixteen keys before did the same twice") {
  ocl::Memory memory;
  ocl::Recipe recipe, another, leaving;
  another.outcome = 1;
  leaving.leaves = true;
  const auto learn = [&](int64_t number, const ocl::Recipe* learnt) {
    const auto key = numbered(number);
    memory.learn(key, learnt, memory.look_up(key).asked);
    return memory.look_up(key).recipe != nullptr;
  };
  for (int64_t number = 0; number < 16; ++number) {
    REQUIRE(!learn(number, &recipe));
    REQUIRE(learn(number, &recipe));
  }
  CHECK(learn(16, &recipe));
  CHECK(!learn(17, &leaving));  // a later call need not make what this one did
  CHECK(!learn(18, nullptr));
  CHECK(!learn(19, &recipe));  // since 18 could not be repeated
  CHECK(!learn(19, &another));
  for (int64_t number = 20; number < 36; ++number) {
    REQUIRE(!learn(number, &recipe));
    REQUIRE(learn(number, &recipe));
  }
  CHECK(learn(36, &recipe));
  ocl::forget_recalled();
  CHECK(!learn(37, &recipe));
}

TEST_CASE("a recipe says whether its call leaves memory behind that is no result") {
  const auto in = items(), out = items();
  const auto key = key_of({address(in), address(out)});
  for (const bool leaves : {false, true}) {
    const ocl::Noting noting;
    auto space = items();
    enqueue_add(address(in), address(space), 1);
    enqueue_add(address(space), address(out), 10);
    if (!leaves) space.clear();
    ocl::Writer writer(0, key, noting);
    REQUIRE(writer.add_steps());
    writer.end();
    CHECK(writer.recipe.leaves == leaves);
  }
}

TEST_CASE("a call is run until its recipe is sure, and from then on repeated") {
  ocl::Memory memory;
  const auto in = items(), out = items();
  fill(in, 5);
  const auto key = key_of({address(in), address(out)});
  int runs = 0, repeats = 0;
  const auto once = [&] {
    return ocl::repeat_or_learn(
        memory, key, 0,
        [&](const ocl::Recipe& recipe, auto&, int status) {
          CHECK(status == 0);
          ++repeats;
          return recipe.outcome;
        },
        [&](bool is_noted) {
          CHECK(is_noted);
          ++runs;
          call(address(in), address(out));
          return int64_t(7);
        },
        [](ocl::Writer& writer, int64_t outcome) {
          writer.recipe.outcome = outcome;
          return true;
        });
  };
  for (int i = 0; i < 4; ++i) {
    fill(out, 0);
    CHECK(once() == 7);
    CHECK(value_of(out) == 16);
  }
  CHECK(runs == 2);
  CHECK(repeats == 2);
}

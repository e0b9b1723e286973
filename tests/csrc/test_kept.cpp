// What plans make of weights, kept as long as nothing is written to these.
#include "entries.h"
#include "runtime/kept.h"
#include "testing.h"

using namespace tests;

namespace {

// Stands for a plan that makes one workspace of its weights.
struct Maker {
  ~Maker() { ocl::forget_kept_by(this); }
  ocl::Kept look_up() const { return ocl::look_up_kept(this, {place}); }
  void keep(const ocl::Kept& seen) const {
    ocl::Spaces made;
    made.push_back(items());
    ocl::keep(this, {place}, seen.writes, std::move(made), kBytes);
  }

  c10::DataPtr weights = items();
  int64_t place = address(weights);
};

}  // namespace

TEST_CASE("what was made is kept from the second call on, until something is written") {
  const Maker maker;
  CHECK(maker.look_up().writes.empty());
  const auto seen = maker.look_up();
  REQUIRE(!seen.writes.empty());
  CHECK(!seen.spaces);
  maker.keep(seen);
  CHECK(maker.look_up().spaces);
  CHECK(ocl_kept_bytes(0) == kBytes);
  fill(maker.weights, 1);
  CHECK(!maker.look_up().spaces);
  CHECK(ocl_kept_bytes(0) == 0);
}

TEST_CASE("what was made before another thread wrote is not kept, though that looked up, too") {
  const Maker maker;
  maker.look_up();
  const auto seen = maker.look_up();
  fill(maker.weights, 1);
  maker.look_up();
  maker.keep(seen);
  CHECK(!maker.look_up().spaces);
}

TEST_CASE("nothing is kept of weights that have gone before a held launch ran") {
  Maker maker;
  maker.look_up();
  const auto seen = maker.look_up();
  auto* block = ocl::hold_block(maker.weights.get(), 0);
  maker.weights.clear();
  maker.keep(seen);
  CHECK(ocl_kept_bytes(0) == 0);
  ocl::let_go_block(block);
}

// Launches that share a kernel.
#include "entries.h"
#include "fake_opencl.h"
#include "testing.h"

using namespace tests;

namespace {

// A launch of `kernel` that adds a fixed value.
void* adding_always(void* kernel, int64_t value) {
  const size_t global[] = {kItems};
  const int32_t kinds[] = {0, 0}, indices[] = {0, 2}, item_bytes[] = {8, 8};
  const uint32_t places[] = {4}, bytes[] = {8};
  return ocl_launch_new(0, kernel, 0, "add", 1, global, nullptr, 2, kinds, indices, item_bytes, 1,
                        places, bytes, &value);
}

}  // namespace

TEST_CASE("launches that recur have their arguments for themselves") {
  void* kernel = ocl_kernel_new(nullptr, "add");
  const Owned one(adding_always(kernel, 1)), ten(adding_always(kernel, 10));
  const auto in = items(), out = items(), last = items();
  fill(in, 100);
  const int64_t first[] = {address(in), address(out)}, second[] = {address(out), address(last)};
  const auto run = [&] {
    const int before = fake::arguments_set;
    REQUIRE(ocl_enqueue(one.get(), first) == 0);
    REQUIRE(ocl_enqueue(ten.get(), second) == 0);
    CHECK(value_of(last) == 111);
    return fake::arguments_set - before;
  };
  CHECK(run() > 0);
  CHECK(run() > 0);  // each finds the other's
  for (int again = 0; again < 16; ++again) run();  // until each has a kernel of its own
  CHECK(run() == 0);
  ocl_kernel_delete(kernel);
  CHECK(run() == 0);
}

// Behind the end of the threads that hand commands to the driver. No other file may run after this
// one: they do not begin again.
#include "entries.h"
#include "fake_opencl.h"
#include "runtime/submitter.h"
#include "testing.h"

using namespace tests;

TEST_CASE("behind the end of its thread a device takes commands at once") {
  const Owned one(adding("one"));
  const auto in = items(), out = items();
  const int64_t words[] = {address(in), address(out), 1};
  fill(in, 1);
  REQUIRE(ocl_enqueue(one.get(), words) == 0);
  ocl_set_submitter(0, 1);
  fake::clear_log();
  CHECK(ocl_enqueue(one.get(), words) == 0);
  ocl_stop_submitters();
  CHECK(fake::log() == std::vector<std::string>{"one"});
  ocl_set_submitter(0, 1);
  CHECK(ocl_enqueue(one.get(), words) == 0);
  CHECK(fake::log().size() == 2);
  CHECK(ocl::drain(0) == 0);
}

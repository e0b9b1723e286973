// The address space and the caching allocator.
#include <c10/util/Exception.h>

#include "entries.h"
#include "fake_opencl.h"
#include "runtime/memory.h"
#include "testing.h"

namespace {

constexpr size_t kMiB = size_t(1) << 20;

size_t size_of(size_t bytes) {
  const auto memory = ocl::allocate(0, bytes);
  const ocl::Block* block = ocl::locate(memory.get()).block;
  TORCH_CHECK(block, "memory that is no block's");
  return block->size;
}

ocl::Stats stats() {
  ocl::Stats found;
  ocl::with_stats(0, [&](ocl::Stats& now) { found = now; });
  return found;
}

struct EmptyCache {
  EmptyCache() { ocl::empty_cache(0); }
  ~EmptyCache() { ocl::empty_cache(0); }
};

struct Limited : EmptyCache {
  explicit Limited(size_t bytes) { ocl_set_memory_limit(0, bytes); }
  ~Limited() { ocl_set_memory_limit(0, fake::kDeviceBytes); }
};

}  // namespace

TEST_CASE("sizes are rounded to classes that waste at most an eighth") {
  const EmptyCache empty;
  CHECK(size_of(1) == 512);
  CHECK(size_of(512) == 512);
  CHECK(size_of(513) == 1024);
  CHECK(size_of(8 * kMiB + 1) == 9 * kMiB);
  CHECK(size_of(17 * kMiB) == 18 * kMiB);
}

TEST_CASE("a freed block is handed out again, unless it is over a quarter too large") {
  const EmptyCache empty;
  const void* before = ocl::allocate(0, 1000).get();
  CHECK(ocl::allocate(0, 900).get() == before);
  const void* large = ocl::allocate(0, 5 * kMiB).get();
  CHECK(ocl::allocate(0, 4 * kMiB).get() == large);
  const auto first = ocl::allocate(0, 2 * kMiB);
  CHECK(first.get() != large);
}

TEST_CASE("larger blocks serve once twice the bytes are there that were ever allocated") {
  const EmptyCache empty;
  const auto forget_peak = [](ocl::Stats& now) { now.allocated_bytes[0].reset_peak(); };
  ocl::with_stats(0, forget_peak);
  const void* small = ocl::allocate(0, 4 * kMiB).get();
  const void* middle = ocl::allocate(0, 6 * kMiB).get();
  CHECK(middle != small);
  CHECK(ocl::allocate(0, 3 * kMiB).get() != small);  // 13 MiB are not yet more than twice 6
  ocl::allocate(0, 9 * kMiB);
  const auto reserved = stats().reserved_bytes[0].current;
  CHECK(size_t(reserved) == 22 * kMiB);
  CHECK(ocl::allocate(0, 7 * kMiB / 2).get() == small);
  const auto first = ocl::allocate(0, 4 * kMiB);
  CHECK(ocl::allocate(0, 4 * kMiB).get() == middle);
  CHECK(stats().reserved_bytes[0].current == reserved);
  CHECK(size_of(kMiB / 2) == kMiB / 2);  // four times as large at most
}

TEST_CASE("nothing was held and nothing dropped of a tensor without items") {
  CHECK(ocl::hold_block(nullptr, 0) == nullptr);
  CHECK_FALSE(ocl::is_dropped(nullptr));
}

TEST_CASE("an address inside a block is located, one of the host is not") {
  const auto memory = ocl::allocate(1, 4096);
  const auto found = ocl::locate(static_cast<char*>(memory.get()) + 100);
  REQUIRE(found.block);
  CHECK(found.offset == 100);
  CHECK(found.block->device == 1);
  int host = 0;
  CHECK(!ocl::locate(&host).block);
  CHECK(!ocl::locate(nullptr).block);
  CHECK_THROWS_WITH_AS(ocl::locate_or_throw(&host, "a copy"), doctest::Contains("a copy: "),
                       c10::Error);
  CHECK(ocl::allocate(0, 0).get() == nullptr);
}

TEST_CASE("a block that is held is not handed out again before it is let go") {
  const EmptyCache empty;
  auto memory = ocl::allocate(0, 1000);
  const void* address = memory.get();
  CHECK(ocl::hold_block(address, 1) == nullptr);
  auto* block = ocl::hold_block(address, 0);
  REQUIRE(block == ocl::hold_block(address, 0));
  CHECK(!ocl::is_dropped(address));
  memory.clear();
  CHECK(ocl::is_dropped(address));
  CHECK(ocl::allocate(0, 1000).get() != address);
  ocl::let_go_block(block);
  CHECK(ocl::is_dropped(address));
  ocl::let_go_block(block);
  const auto first = ocl::allocate(0, 1000), second = ocl::allocate(0, 1000);
  CHECK((first.get() == address || second.get() == address));
}

TEST_CASE("the cache is emptied before memory runs out, and only then an error is raised") {
  const Limited limit(12 * kMiB);
  const auto before = stats();
  const auto generation = ocl::release_generation();
  ocl::allocate(0, 8 * kMiB).clear();
  auto memory = ocl::allocate(0, 12 * kMiB);
  CHECK(ocl::release_generation() == generation + 1);
  CHECK(stats().num_alloc_retries == before.num_alloc_retries + 1);
  CHECK(stats().num_ooms == before.num_ooms);
  CHECK_THROWS_AS(ocl::allocate(0, 1), c10::OutOfMemoryError);
  CHECK(stats().num_ooms == before.num_ooms + 1);
  CHECK(ocl::free_and_total(0) == std::pair<size_t, size_t>(0, fake::kDeviceBytes));
  memory.clear();
  CHECK(ocl::allocate(0, 1).get());
}

TEST_CASE("a driver that has no buffer is asked again with an emptied cache") {
  const EmptyCache empty;
  fake::next_buffer_fails = ocl::CL_MEM_OBJECT_ALLOCATION_FAILURE;
  CHECK(ocl::allocate(0, 3000).get());
}

TEST_CASE("figures count what is asked for, what is in use and what the driver gave") {
  const EmptyCache empty;
  const auto before = stats();
  const int buffers = fake::live_buffers;
  auto memory = ocl::allocate(0, 1000);
  auto now = stats();
  CHECK(now.requested_bytes[0].current - before.requested_bytes[0].current == 1000);
  CHECK(now.allocated_bytes[0].current - before.allocated_bytes[0].current == 1024);
  CHECK(now.reserved_bytes[0].current - before.reserved_bytes[0].current == 1024);
  CHECK(now.allocation[0].current - before.allocation[0].current == 1);
  CHECK(fake::live_buffers == buffers + 1);
  memory.clear();
  now = stats();
  CHECK(now.requested_bytes[0].current == before.requested_bytes[0].current);
  CHECK(now.allocated_bytes[0].current == before.allocated_bytes[0].current);
  CHECK(now.reserved_bytes[0].current - before.reserved_bytes[0].current == 1024);
  ocl::empty_cache(0);
  CHECK(stats().reserved_bytes[0].current == before.reserved_bytes[0].current);
  CHECK(fake::live_buffers == buffers);
}

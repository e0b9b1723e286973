// Buffers that lie in the host's large pages.
#include <cstdint>
#include <vector>

#include "entries.h"
#include "fake_opencl.h"
#include "runtime/buffers.h"
#include "runtime/memory.h"
#include "testing.h"

#ifdef __linux__

namespace {

constexpr size_t kMebi = size_t(1) << 20;

uintptr_t number_of(const void* pages) { return reinterpret_cast<uintptr_t>(pages); }

bool lies_in_pages(const c10::DataPtr& memory) {
  const ocl::Block* block = ocl::locate(memory.get()).block;
  return block && block->pages;
}

struct WithPages {
  WithPages() { ocl::device_at(0).is_processor = true; }
  ~WithPages() {
    ocl::device_at(0).is_processor = false;
    ocl::empty_cache(0);
  }
};

}  // namespace

TEST_CASE("ranges of pages lie side by side, and a mapping ends with its last one") {
  const size_t before = ocl::mapped_pages();
  void* first = ocl::take_pages(100'000);
  REQUIRE(first);
  CHECK(number_of(first) % (2 * kMebi) == 0);
  void* second = ocl::take_pages(kMebi);
  void* third = ocl::take_pages(5000);
  CHECK(number_of(second) == number_of(first) + 102'400);  // a multiple of 4096
  CHECK(number_of(third) == number_of(second) + kMebi);
  CHECK(ocl::mapped_pages() == before + 32 * kMebi);
  ocl::give_pages_back(first);
  ocl::give_pages_back(second);
  CHECK(ocl::take_pages(kMebi + 102'400) == first);  // both ranges are one again
  ocl::give_pages_back(third);
  ocl::give_pages_back(first);
  CHECK(ocl::mapped_pages() == before);
}

TEST_CASE("what is larger than a mapping has one of its own") {
  const size_t before = ocl::mapped_pages();
  void* large = ocl::take_pages(33 * kMebi);
  REQUIRE(large);
  CHECK(ocl::mapped_pages() == before + 34 * kMebi);
  static_cast<char*>(large)[33 * kMebi - 1] = 1;
  // compilers that load for all lanes read an item before the first and one behind the last
  volatile const char* bytes = static_cast<char*>(large);
  CHECK(bytes[-4096] == 0);
  CHECK(bytes[34 * kMebi + 4095] == 0);
  ocl::give_pages_back(large);
  CHECK(ocl::mapped_pages() == before);
}

TEST_CASE("buffers of a processor lie in pages, small ones and those of others do not") {
  ocl::empty_cache(0);
  const size_t before = ocl::mapped_pages();
  {
    const WithPages on;
    const auto memory = ocl::allocate(0, kMebi), small = ocl::allocate(0, 1000);
    CHECK(lies_in_pages(memory));
    CHECK_FALSE(lies_in_pages(small));
    CHECK(ocl::mapped_pages() > before);
    const auto other = ocl::allocate(1, kMebi);
    CHECK_FALSE(lies_in_pages(other));
  }
  CHECK(ocl::mapped_pages() == before);
}

TEST_CASE("pages return where the driver refuses a buffer") {
  ocl::empty_cache(0);
  const WithPages on;
  const size_t before = ocl::mapped_pages();
  fake::next_buffer_fails = ocl::CL_OUT_OF_RESOURCES;
  const auto memory = ocl::allocate(0, 3 * kMebi);  // again, behind an empty cache
  CHECK(lies_in_pages(memory));
  CHECK(ocl::mapped_pages() == before + 32 * kMebi);
}

#endif

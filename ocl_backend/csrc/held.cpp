// A block that a held launch will use is not handed out again before that has run, whoever drops
// it: whether it was dropped says whether anybody could still look at what lies there.
#include "held.h"

#include <algorithm>
#include <vector>

#include "launch.h"
#include "profile.h"

namespace ocl {

namespace {

// Set and read with the interpreter lock held, but for the flag.
std::atomic<bool> holding{false};
std::vector<Block*> held;
uint64_t correlation = 0;
bool is_named = false;
int (*settler)() = nullptr;
thread_local std::string error;

[[noreturn]] void raise(int status) {
  TORCH_CHECK_WITH(OutOfMemoryError, status != kOutOfMemory, error);
  if (status == kRefused)
    throw c10::AcceleratorError({__func__, __FILE__, uint32_t(__LINE__)}, status, error);
  TORCH_CHECK(false, error);
}

// Lets go what was held since there were `count`.
void let_go(size_t count) {
  for (; held.size() > count; held.pop_back()) let_go_block(held.back());
}

}  // namespace

void settle_held() {
  if (!holding.load(std::memory_order_acquire) || in_forked_child()) return;
  if (const int status = settler()) raise(status);
}

}  // namespace ocl

extern "C" {

// `settler` runs what is held back; it returns a `Status`, its text given to `ocl_settling_failed`.
void ocl_hold_with(int (*settler)()) { ocl::settler = settler; }
void ocl_settling_failed(const char* text) { ocl::error = text; }

// Holds blocks for a launch of the operator this thread is in. `words` are a device, how many of
// the addresses that follow are read, how many more are written, and those; 0 is none. Returns 0,
// and holds nothing, if one of them is no memory of the device, is to be read and will be written by
// what is held already, or is to be written and will be read or written by that.
int ocl_hold(const int64_t* words) {
  const auto device = c10::DeviceIndex(words[0]);
  const int64_t reads = words[1], count = reads + words[2];
  const size_t before = ocl::held.size();
  for (int64_t i = 0; i < count; ++i) {
    const auto* address = reinterpret_cast<const void*>(words[3 + i]);
    if (!address) continue;
    ocl::Block* block = ocl::hold_block(address, device);
    if (block) ocl::held.push_back(block);
    const auto end = ocl::held.begin() + ptrdiff_t(before);
    if (!block || (i < reads ? block->awaited : std::find(ocl::held.begin(), end, block) != end)) {
      ocl::let_go(before);
      return 0;
    }
    if (i >= reads) block->awaited = true;
  }
  ocl::correlation = ocl::current_correlation();
  ocl::holding.store(true, std::memory_order_release);
  return 1;
}

// Whether nobody holds the memory at a held address any more but the launch.
int ocl_is_dropped(int64_t address) {
  return ocl::is_dropped(reinterpret_cast<const void*>(address));
}

// Lets what is held appear in profiles under the operator that was held last, from now on until
// the end.
void ocl_name_held() {
  ocl::push_correlation(ocl::correlation);
  ocl::is_named = true;
}

// The end: what was held has run, or failed.
void ocl_let_go() {
  if (ocl::is_named) ocl::pop_correlation();
  ocl::is_named = false;
  ocl::holding.store(false, std::memory_order_release);
  ocl::let_go(0);
}
}

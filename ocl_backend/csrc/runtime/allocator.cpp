// The device's allocator as torch sees it.
#include <unordered_map>  // the next one uses it

#include <c10/core/AutogradState.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <atomic>

#include "runtime/deferred.h"
#include "runtime/memory.h"
#include "runtime/pinned.h"
#include "runtime/submitter.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

// Whether a thread that allocates runs its backward passes itself.
std::atomic<bool> keeps_backward{false};

// Once for each thread: a program may choose otherwise later.
void keep_backward_here() {
  thread_local bool was_told = false;
  if (was_told || !keeps_backward.load(std::memory_order_relaxed)) return;
  was_told = true;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    keep_backward_here();
    return ocl::allocate(current_device(), bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    copy(target, source, bytes);
  }

  bool initialized() override { return is_closed() || device_count() > 0; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    for (int i = 0; i < device_count(); ++i) {
      const auto index = c10::DeviceIndex(i);
      wait_for_programs(index);
      if (const int failed = drain(index)) raise(failed);
      ocl::empty_cache(index);
    }
    empty_pinned_cache();
  }
  // One in-order queue per device: a block is never reused ahead of its last reader.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    Stats stats;
    with_stats(index, [&](Stats& now) { stats = now; });
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    with_stats(index, [](Stats& stats) {
      for (auto* array : arrays(stats))
        for (auto& stat : *array) stat.reset_accumulated();
      stats.num_alloc_retries = stats.num_ooms = 0;
    });
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    with_stats(index, [](Stats& stats) {
      for (auto* array : arrays(stats))
        for (auto& stat : *array) stat.reset_peak();
    });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return free_and_total(index);
  }

 private:
  static std::array<c10::CachingDeviceAllocator::StatArray*, 7> arrays(
      c10::CachingDeviceAllocator::DeviceStats& s) {
    return {&s.allocation,     &s.segment,      &s.active,         &s.allocated_bytes,
            &s.reserved_bytes, &s.active_bytes, &s.requested_bytes};
  }
};

}  // namespace

c10::DeviceAllocator* allocator() {
  static auto* instance = new Allocator();
  return instance;
}

}  // namespace ocl

extern "C" {

// Lets threads run their backward passes themselves, as torch does on its CPU. Autograd's thread
// for a device takes a core from the caller, which waits for it, and from the device's kernels if
// that is a processor: a switch there and back takes 10 to 20 us.
void ocl_keep_backward() { ocl::keeps_backward = true; }
}

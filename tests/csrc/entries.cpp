#include "entries.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <numeric>

#include "fake_opencl.h"
#include "fusion/held.h"
#include "runtime/transfer.h"

namespace tests {

std::atomic<int> asked_python{0};
std::atomic<int64_t> next_fusion_fails{0};
std::atomic<bool> next_fusion_is_interrupted{false}, next_fusion_is_left{false};

c10::DataPtr items(int device) { return ocl::allocate(c10::DeviceIndex(device), kBytes); }

int64_t address(const c10::DataPtr& memory) { return reinterpret_cast<int64_t>(memory.get()); }

void fill(const c10::DataPtr& memory, int64_t value) {
  const std::vector<int64_t> values(kItems, value);
  ocl::write(memory.get(), values.data(), kBytes, false);
}

int64_t value_of(const c10::DataPtr& memory) {
  std::array<int64_t, kItems> values{};
  ocl::read(values.data(), memory.get(), kBytes);
  for (const int64_t value : values)
    TORCH_CHECK(value == values[0], "items differ: ", value, " and ", values[0]);
  return values[0];
}

void* adding(const char* name, int device) {
  void* kernel = ocl_kernel_new(nullptr, name);
  const size_t global[] = {kItems};
  const int32_t kinds[] = {0, 0, 2}, indices[] = {0, 2, 4}, item_bytes[] = {8, 8, 0};
  void* made = ocl_launch_new(device, kernel, 0, name, 1, global, nullptr, 3, kinds, indices,
                              item_bytes, 0, nullptr, nullptr, nullptr);
  ocl_kernel_delete(kernel);  // the launch keeps it
  return made;
}

void* held_adding(int64_t number, const char* name, uint32_t kind, uint32_t follows,
                  bool is_asked) {
  const Owned alone(adding(name));
  const uint32_t places[] = {0, 0, 1, 1};  // one way: source 0, no reads, one write: 1
  return ocl_held_new(number, name, alone.get(), is_asked, 0, kind, follows, kItems, 0, 1, 1, 0, 1,
                      places);
}

namespace {

void run(const int64_t* words, int64_t launches, int64_t* ran) {
  static const auto* fused = new Owned(adding("fused"));
  ++asked_python;
  if (next_fusion_is_interrupted.exchange(false)) ocl_note_interrupt();
  if (next_fusion_is_left.exchange(false)) return;
  if (const int64_t status = next_fusion_fails.exchange(0)) {
    ocl_python_failed("the fake Python failed");
    *ran = -status;
    return;
  }
  int64_t given[3] = {words[3], 0, 0};
  for (int64_t i = 0; i < launches; ++i, words += 3 + words[0]) {
    given[1] = words[4];
    given[2] += words[5];
  }
  const int status = ocl_enqueue(fused->get(), given);
  *ran = status ? -int64_t(status) : launches;
}

}  // namespace

void serve_chains() { ocl_hold_with(run, nullptr, nullptr, nullptr); }

}  // namespace tests

// The record of a device is four `int64_t` that kernels reach as any buffer: the number of what was
// asked for (0: nothing is wrong), the index, the size it should be below, and the dimension.
#include "runtime/faults.h"

#include <array>
#include <vector>

#include "runtime/deferred.h"
#include "runtime/observer.h"
#include "runtime/submitter.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

using Record = std::array<int64_t, 4>;

std::vector<std::string>& texts() {
  static auto* all = new std::vector<std::string>();
  return *all;
}

// What a record means: the text of its number, with the record's values in the places for them.
std::string described(const Record& record) {
  const auto& [number, index, size, dim] = record;
  std::string text = texts().at(size_t(number - 1));
  const std::pair<std::string, int64_t> fields[] = {
      {"{index}", index}, {"{size}", size}, {"{dim}", dim}};
  for (const auto& [field, value] : fields)
    for (size_t at; (at = text.find(field)) != std::string::npos;)
      text.replace(at, field.size(), std::to_string(value));
  return text;
}

// Waits for the device, reads its record and clears it.
Record take(Device& device) {
  Record record{};
  const Location at = locate(reinterpret_cast<const void*>(device.faults.load()));
  if (!at.block) return record;
  const cl_command_queue queue = queue_of(at.block->device);
  check(cl.clEnqueueReadBuffer(queue, at.block->buffer, CL_TRUE, at.offset, sizeof record,
                               record.data(), 0, nullptr, nullptr),
        device, "reading the record of faults");
  if (record[0] == 0) return record;
  const Record nothing{};
  check(cl.clEnqueueWriteBuffer(queue, at.block->buffer, CL_TRUE, at.offset, sizeof nothing,
                                nothing.data(), 0, nullptr, nullptr),
        device, "clearing the record of faults");
  return record;
}

}  // namespace

void raise_fault(Device& device) {
  if (!device.may_have_faulted.exchange(false)) return;
  const Record record = take(device);
  if (record[0] == 0) return;
  throw c10::AcceleratorError(
      {__func__, __FILE__, uint32_t(__LINE__)}, int32_t(record[0]),
      c10::str(described(record),
               ". Kernels run asynchronously: the call that was wrong came earlier. "
               "OCLGEN_SYNC_ERRORS=1 raises at that call. The device can be used on."));
}

}  // namespace ocl

extern "C" {

// Makes the four zeros at `address` the record of a device; `given[i - 1]` says what fault number i
// means, with places for {index}, {size} and {dim}.
void ocl_watch_faults(int device, int64_t address, const char* const* given, int count) {
  ocl::texts().assign(given, given + count);
  ocl::device_at(c10::DeviceIndex(device)).faults = address;
}

// Waits, and writes the record to `words`; returns whether there was a fault, which is forgotten,
// or a negative status. A call that does this waits every time: it cannot be recalled, for no
// recipe reads the record.
int ocl_take_fault(int device, int64_t* words) try {
  ocl::observer().unrepeatable();
  ocl::observer().before_command();
  if (const int status = ocl::enqueue_deferred(c10::DeviceIndex(device))) return -status;
  ocl::Device& taken = ocl::device_at(c10::DeviceIndex(device));
  taken.may_have_faulted = false;
  const auto record = ocl::take(taken);
  std::copy(record.begin(), record.end(), words);
  return record[0] != 0;
} catch (...) {
  return -ocl::fail_with_exception();
}
}

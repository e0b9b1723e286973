#include "fusion/number.h"

#include <ATen/ScalarOps.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <utility>

#include "fusion/held.h"
#include "fusion/recipe.h"
#include "runtime/deferred.h"
#include "runtime/graph.h"
#include "runtime/interpreter.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

struct Number {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  at::Tensor value;  // of the CPU, without dimensions
};

std::recursive_mutex mutex;  // guards `number`; a thread that waits for it lets go of Python
auto& number = *new std::optional<Number>();  // may be left at exit, when the runtime has ended
std::atomic<bool> is_held{false};  // read without the lock; true until the number is in the queue
thread_local int passing = 0;

void write_held(const Number& held) {
  const auto storage = held.storage.lock();
  const size_t bytes = held.value.nbytes();
  if (storage && storage->nbytes() == bytes)
    write_new(storage->mutable_data(), held.value.const_data_ptr(), bytes);
}

}  // namespace

bool hold_number(const at::Tensor& tensor, const at::Scalar& value) {
  if (is_noting() || !holds_back() || in_forked_child()) return false;
  if (graph_here()) return false;  // another thread may be the one that writes it
  if (passing || is_enqueueing_deferred()) return false;  // its reader would not write it
  if (const int status = settle_number()) raise(status);
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  Number held{c10::weak_intrusive_ptr<c10::StorageImpl>(
                  c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)),
              at::detail::scalar_tensor_static(value, tensor.scalar_type(), at::kCPU)};
  const PatientLock lock(mutex);
  if (number) return false;  // another thread's
  number = std::move(held);
  is_held.store(true, std::memory_order_release);
  return true;
}

std::optional<at::Scalar> held_number(const at::Tensor& tensor) {
  if (!is_held.load(std::memory_order_acquire) || is_noting()) return {};
  const auto& storage = tensor.storage();
  at::Tensor value;
  {
    const PatientLock lock(mutex);
    if (!number || number->storage._unsafe_get_target() != storage.unsafeGetStorageImpl())
      return {};
    value = number->value;
  }
  if (value.scalar_type() != tensor.scalar_type() || storage.nbytes() != tensor.itemsize())
    return {};
  return value.item();
}

PassingNumber::PassingNumber() { ++passing; }
PassingNumber::~PassingNumber() { --passing; }

// What is deferred was enqueued before the number, and its memory may be what the number got.
int settle_number() {
  if (!is_held.load(std::memory_order_acquire) || passing || in_forked_child() ||
      is_enqueueing_deferred())
    return kOk;
  const PatientLock lock(mutex);
  const PassingNumber here;
  int status = kOk;
  try {
    if (number) write_held(*number);
  } catch (...) {
    status = fail_with_exception();
  }
  if (status % kPython == kInterrupted) return status;
  number.reset();
  is_held.store(false, std::memory_order_release);
  return status;
}

}  // namespace ocl

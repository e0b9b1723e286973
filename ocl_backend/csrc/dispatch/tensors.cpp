// The operators only C++ can write: creating tensors, viewing and resizing them.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/arange.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "dispatch/operators.h"
#include "fusion/held.h"
#include "fusion/number.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

using at::IntArrayRef;
using at::Tensor;

at::ScalarType checked_dtype(std::optional<at::ScalarType> dtype) {
  const at::ScalarType type = dtype.value_or(c10::typeMetaToScalarType(at::get_default_dtype()));
  TORCH_CHECK_TYPE(!at::isQIntType(type), "ocl devices hold no quantized tensors; ", type,
                   " is not supported. Keep this tensor on the CPU, or call dequantize().");
  const Device& device = device_at(checked(current_device()));
  TORCH_CHECK_TYPE(device.doubles || c10::toRealValueType(type) != at::kDouble,
                   "ocl:", int(current_device()), " (", device.name, ") has no cl_khr_fp64: ", type,
                   " is not supported there. Use float32, or keep this tensor on the CPU.");
  return type;
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pinned) {
  const at::Layout asked = layout.value_or(at::kStrided);
  // torch asks for the number beside a jagged tensor with that tensor's own layout
  TORCH_CHECK(asked == at::kStrided || asked == at::kJagged, "ocl devices hold strided tensors; ",
              asked, " is not supported. Use to_dense().");
  TORCH_CHECK(!pinned.value_or(false), "only CPU memory can be pinned; leave out pin_memory=True.");
}

c10::Device chosen(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kType, current_device());
}

bool fills_memory() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

// torch.use_deterministic_algorithms: unwritten items read as NaN, or the largest integer.
Tensor filled(Tensor tensor) {
  return fills_memory() ? at::native::fill_empty_deterministic_(tensor) : tensor;
}

void grow_storage(const Tensor& self, size_t bytes) {
  auto* storage = self.storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) resize_storage(*storage, bytes);
}

// Whether held calls have this number in their kernel's text, as the numbers of a mask. Other
// numbers may be new at each call, and are written to memory.
bool joins_chain(const Tensor& tensor, const at::Scalar& value) {
  const auto type = tensor.scalar_type();
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  if (at::GradMode::is_enabled() || !holds_loosely() || value.isComplex()) return false;
  const double number = value.toDouble();
  return number == 0 || std::isinf(number);
}

// How many numbers a range has, computed in double; 0 if it is wrong. Where rounding or truncation
// makes the number another one, the kernel resizes the result.
int64_t numbers_in(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step) {
  for (const auto* one : {&start, &end, &step})
    if (one->isComplex()) return 0;
  const double count = std::ceil((end.toDouble() - start.toDouble()) / step.toDouble());
  constexpr double kMost = 1e15;  // exact in a double
  return count > 0 && count < kMost ? int64_t(count) : 0;
}

}  // namespace

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype,
             std::optional<at::Layout> layout, std::optional<at::Device> device,
             std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  check_options(layout, pinned);
  const c10::DeviceGuard guard(chosen(device));
  return filled(at::detail::empty_generic(size, allocator(),
                                          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                          checked_dtype(dtype), format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<at::Device> device,
                     std::optional<bool> pinned) {
  check_options(layout, pinned);
  const c10::DeviceGuard guard(chosen(device));
  return filled(at::detail::empty_strided_generic(
      size, stride, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      checked_dtype(dtype)));
}

Tensor scalar_tensor(const at::Scalar& value, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<at::Device> device,
                     std::optional<bool> pinned) {
  Tensor made = empty({}, dtype, layout, device, pinned, {});
  if (joins_chain(made, value) || !hold_number(made, value)) made.fill_(value);
  return made;
}

// The result has its size when the kernel gets it: a call that resizes an argument is not recalled.
Tensor arange_step(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                   std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pinned) {
  const bool is_whole = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const auto type = dtype || !is_whole ? dtype : at::kLong;
  Tensor out = empty({numbers_in(start, end, step)}, type, layout, device, pinned, {});
  return at::arange_out(out, start, end, step);
}

Tensor arange_start(const at::Scalar& start, const at::Scalar& end,
                    std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                    std::optional<at::Device> device, std::optional<bool> pinned) {
  return arange_step(start, end, 1, dtype, layout, device, pinned);
}

Tensor arange(const at::Scalar& end, std::optional<at::ScalarType> dtype,
              std::optional<at::Layout> layout, std::optional<at::Device> device,
              std::optional<bool> pinned) {
  return arange_step(0, end, 1, dtype, layout, device, pinned);
}

const Tensor& resize_(const Tensor& self, IntArrayRef size,
                      std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const size_t before = self.storage().nbytes();
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
    grow_storage(self, at::detail::computeStorageNbytesContiguous(size, self.itemsize(),
                                                                  size_t(self.storage_offset())));
  }
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  if (fills_memory()) at::native::fill_resize_deterministic_(self, int64_t(before));
  return self;  // NOLINT(bugprone-return-const-ref-from-parameter): torch's signature
}

Tensor& set_storage_(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size,
                     IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data()) {
    impl->set_sizes_and_strides(size, stride);
    grow_storage(self,
                 at::detail::computeStorageNbytes(size, stride, self.itemsize(), size_t(offset)));
  } else {
    impl->set_sizes_contiguous(size);
    grow_storage(self,
                 at::detail::computeStorageNbytesContiguous(size, self.itemsize(), size_t(offset)));
  }
  return self;
}

Tensor& set_whole_storage_(Tensor& self, at::Storage source) {
  const auto count = int64_t(source.nbytes() / self.itemsize());
  return set_storage_(self, std::move(source), 0, {count}, {});
}

Tensor& set_empty_(Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  at::Storage storage(at::Storage::use_byte_size_t(), 0, allocator(), true);
  return set_storage_(self, std::move(storage), 0, {0}, {});
}

// Whether `self.data = other` may put the other's memory under `self`, which stays the same object
// for optimizers and modules. torch allows it between its own devices, and knows no private one.
bool takes_memory_of(const Tensor& self, const Tensor& other) {
  const auto is_dense = [](const Tensor& tensor) {
    constexpr c10::DispatchKeySet backends(
        {c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
    const auto keys = tensor.key_set();
    return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && keys.has_any(backends);
  };
  return (is_dense(self) && is_dense(other)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(other.key_set());
}

}  // namespace ocl

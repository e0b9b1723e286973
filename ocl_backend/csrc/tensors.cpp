// The operators only C++ can write: creating tensors, viewing and resizing them.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

#include "operators.h"
#include "transfer.h"

namespace ocl {

namespace {

using at::IntArrayRef;
using at::Tensor;
constexpr auto kType = c10::DeviceType::PrivateUse1;

at::ScalarType checked_dtype(std::optional<at::ScalarType> dtype) {
  const at::ScalarType type = dtype.value_or(c10::typeMetaToScalarType(at::get_default_dtype()));
  TORCH_CHECK_TYPE(!at::isQIntType(type), "ocl devices hold no quantized tensors; ", type,
                   " is not supported. Keep this tensor on the CPU, or call dequantize().");
  return type;
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "ocl devices hold strided tensors; ",
              *layout, " is not supported. Use to_dense().");
  TORCH_CHECK(!pinned.value_or(false), "only CPU memory can be pinned; leave out pin_memory=True.");
}

c10::Device chosen(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kType, current_device());
}

void grow_storage(const Tensor& self, size_t bytes) {
  auto* storage = self.storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) resize_storage(*storage, bytes);
}

}  // namespace

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype,
             std::optional<at::Layout> layout, std::optional<at::Device> device,
             std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  check_options(layout, pinned);
  const c10::DeviceGuard guard(chosen(device));
  return at::detail::empty_generic(size, allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   checked_dtype(dtype), format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<at::Device> device,
                     std::optional<bool> pinned) {
  check_options(layout, pinned);
  const c10::DeviceGuard guard(chosen(device));
  return at::detail::empty_strided_generic(size, stride, allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           checked_dtype(dtype));
}

const Tensor& resize_(const Tensor& self, IntArrayRef size,
                      std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
    grow_storage(self, at::detail::computeStorageNbytesContiguous(
                           size, self.itemsize(), size_t(self.storage_offset())));
  }
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

Tensor& set_storage_(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size,
                     IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data()) {
    impl->set_sizes_and_strides(size, stride);
    grow_storage(self, at::detail::computeStorageNbytes(size, stride, self.itemsize(),
                                                        size_t(offset)));
  } else {
    impl->set_sizes_contiguous(size);
    grow_storage(self, at::detail::computeStorageNbytesContiguous(size, self.itemsize(),
                                                                  size_t(offset)));
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

}  // namespace ocl

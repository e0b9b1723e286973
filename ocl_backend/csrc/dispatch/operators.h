// The operators the shim implements; `dispatch.cpp` registers them. Signatures are torch's.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace ocl {

inline constexpr auto kType = c10::DeviceType::PrivateUse1;

// tensors.cpp
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat> format);
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pinned);
at::Tensor scalar_tensor(const at::Scalar& value, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pinned);
at::Tensor arange(const at::Scalar& end, std::optional<at::ScalarType> dtype,
                  std::optional<at::Layout> layout, std::optional<at::Device> device,
                  std::optional<bool> pinned);
at::Tensor arange_start(const at::Scalar& start, const at::Scalar& end,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pinned);
at::Tensor arange_step(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                       std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                       std::optional<at::Device> device, std::optional<bool> pinned);
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format);
at::Tensor& set_storage_(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                         at::IntArrayRef stride);
at::Tensor& set_whole_storage_(at::Tensor& self, at::Storage source);
at::Tensor& set_empty_(at::Tensor& self);
bool takes_memory_of(const at::Tensor& self, const at::Tensor& other);

// copies.cpp
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target);
at::Scalar local_scalar_dense(const at::Tensor& self);

// dispatch.cpp: the Python kernel for copies that change dtype or layout
void strided_copy(const at::Tensor& source, const at::Tensor& target);

// device.cpp
const at::Generator& default_generator(c10::DeviceIndex index);

}  // namespace ocl

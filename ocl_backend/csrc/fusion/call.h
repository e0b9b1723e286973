// An operator's call as recall has it: its key, and whether all of its arguments are understood.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>

#include "fusion/recipe.h"

namespace ocl {

class Call {
 public:
  Key key;
  c10::DeviceIndex device = -1;
  bool known = true;

  // Of the last arguments on a stack.
  Call(const torch::jit::Stack& stack, size_t arguments);

  // Of arguments as an operator's signature has them. Its key is that of the same arguments on a
  // stack.
  template <typename... Args>
  static Call of(const Args&... args) {
    Call call;
    (call.add(args), ...);
    call.end();
    return call;
  }

 private:
  Call();
  void end();

  void add(const c10::IValue& value);
  void add(const at::Tensor& tensor);
  void add(const at::Scalar& number);
  void add(const at::ITensorListRef& tensors);
  void add(at::IntArrayRef numbers);
  void add(const c10::Device& place);
  void add(int64_t number);
  void add(bool truth);
  void add(double number);
  void add(at::ScalarType dtype) { add(int64_t(dtype)); }
  void add(at::Layout layout) { add(int64_t(layout)); }
  void add(at::MemoryFormat format) { add(int64_t(format)); }
  void add(const at::OptionalIntArrayRef& numbers) { numbers ? add(*numbers) : add_none(); }
  template <typename T>
  void add(const std::optional<T>& given) {
    given ? add(*given) : add_none();
  }
  void add_none();
  void add_operand(const at::Tensor& tensor);

  c10::SmallVector<const c10::TensorImpl*, 16> tensors_;
};

}  // namespace ocl

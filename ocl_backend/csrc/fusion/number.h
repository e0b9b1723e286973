// A tensor of one number that was made from it and not read yet: `x[1:] = 0` makes one to copy.
//
// It is written before the next command, as what is held back is (held.h). A copy of it to other
// memory is no such command: that memory is filled with the number instead. If the tensor is
// dropped before another command, its number is never written.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ocl {

// Holds back the writing of `value` to `tensor`, which is new; false: it is to be written at once.
bool hold_number(const at::Tensor& tensor, const at::Scalar& value);

// The number that all items of `tensor` are, if that is held back.
std::optional<at::Scalar> held_number(const at::Tensor& tensor);

// While one exists, this thread's commands do not touch the number that is held back.
class PassingNumber {
 public:
  PassingNumber();
  ~PassingNumber();
  PassingNumber(const PassingNumber&) = delete;
  PassingNumber& operator=(const PassingNumber&) = delete;
};

// Writes what is held back, if anything is and its tensor is still there. Returns a `Status`.
int settle_number();

}  // namespace ocl

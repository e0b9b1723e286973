// A tensor of one number whose memory is not written yet: `x[1:] = 0` makes such a tensor to copy.
//
// Like held launches (held.h), the number is written before the next command. A copy of the tensor
// to other memory is the exception: that memory is filled with the number instead. If the tensor is
// dropped before another command, its number is never written.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ocl {

// Holds back the write of `value` to `tensor`, which is new; false: the caller must write it.
bool hold_number(const at::Tensor& tensor, const at::Scalar& value);

// The held number, if `tensor` is its tensor.
std::optional<at::Scalar> held_number(const at::Tensor& tensor);

// While one exists, this thread's commands do not write the held number.
class PassingNumber {
 public:
  PassingNumber();
  ~PassingNumber();
  PassingNumber(const PassingNumber&) = delete;
  PassingNumber& operator=(const PassingNumber&) = delete;
};

// Writes the held number, if there is one and its tensor still exists. Returns a `Status`.
int settle_number();

}  // namespace ocl

// Operators that move bytes: between host and device, within and between devices.
// Copies that change dtype or layout are handed to the Python operator `ocl::strided_copy`.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "dispatch/idle.h"
#include "dispatch/operators.h"
#include "fusion/number.h"
#include "runtime/pinned.h"
#include "runtime/transfer.h"

namespace ocl {

namespace {

using at::Tensor;

// The same items in the same order, without gaps: a copy of bytes.
bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  return a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

// The bytes from a tensor's first to its last item.
size_t span(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return size_t(last + 1) * tensor.itemsize();
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto* first = static_cast<const char*>(a.const_data_ptr());
  const auto* second = static_cast<const char*>(b.const_data_ptr());
  return first < second + span(b) && second < first + span(a);
}

// Fills the target where the source is a number that is held back; says whether it is.
bool filled(const Tensor& source, const Tensor& target) {
  if (source.dtype() != target.dtype()) return false;
  const auto number = held_number(source);
  if (!number) return false;
  const PassingNumber passing;
  Tensor(target).fill_(*number);
  return true;
}

// Whether the driver's own command copies as fast as a kernel: it always does for a few bytes.
bool is_copied_by_driver(const Tensor& target) {
  constexpr size_t kFewBytes = 2048;
  return target.nbytes() <= kFewBytes || !device_at(target.get_device()).copies_slowly;
}

void within_device(const Tensor& source, const Tensor& target) {
  if (filled(source, target)) return;
  if (overlap(source, target)) {
    within_device(source.clone(), target);
  } else if (same_layout(source, target) && is_copied_by_driver(target)) {
    copy(target.data_ptr(), source.const_data_ptr(), target.nbytes());
  } else {
    strided_copy(source, target);
  }
}

void between_devices(const Tensor& source, const Tensor& target) {
  if (same_layout(source, target)) {
    copy(target.data_ptr(), source.const_data_ptr(), target.nbytes());
    return;
  }
  const Tensor dense = source.to(target.dtype()).contiguous();
  Tensor landed = at::empty_like(dense, target.options(), at::MemoryFormat::Contiguous);
  copy(landed.data_ptr(), dense.const_data_ptr(), dense.nbytes());
  within_device(landed, target);
}

void to_host(const Tensor& source, const Tensor& target) {
  if (same_layout(source, target)) {
    read(target.data_ptr(), source.const_data_ptr(), target.nbytes());
    return;
  }
  const Tensor dense = source.contiguous();
  const Tensor landed = at::empty(dense.sizes(), dense.options().device(at::kCPU));
  read(landed.data_ptr(), dense.const_data_ptr(), dense.nbytes());
  target.copy_(landed);
}

void to_device(const Tensor& source, const Tensor& target, bool non_blocking) {
  if (same_layout(source, target)) {
    const bool stays = non_blocking && is_pinned(source.const_data_ptr());
    write(target.data_ptr(), source.const_data_ptr(), target.nbytes(), stays);
    return;
  }
  const Tensor dense = source.to(target.dtype()).contiguous();
  if (target.is_contiguous()) {
    write(target.data_ptr(), dense.const_data_ptr(), dense.nbytes(), false);
    return;
  }
  const Tensor landed = at::empty(dense.sizes(), target.options());
  write(landed.data_ptr(), dense.const_data_ptr(), dense.nbytes(), false);
  within_device(landed, target);
}

// The same memory without torch's lazy conjugation and negation: what the bytes say.
Tensor as_stored(const Tensor& tensor) {
  const Tensor plain = tensor.is_conj() ? at::_conj(tensor) : tensor;
  return plain.is_neg() ? at::_neg_view(plain) : plain;
}

}  // namespace

Tensor copy_from(const Tensor& self, const Tensor& target, bool non_blocking) {
  const Tensor source = self.sizes() == target.sizes() ? self : self.expand_as(target);
  if (target.numel() == 0) return target;
  at::assert_no_internal_overlap(target);
  if (source.is_conj() || source.is_neg() || target.is_conj() || target.is_neg()) {
    Tensor stored = as_stored(target);
    copy_from(as_stored(source), stored, non_blocking);
    if (source.is_conj() != target.is_conj()) stored.conj_physical_();
    if (source.is_neg() != target.is_neg()) stored.neg_();
    return target;
  }
  const bool from_device = source.device().type() == kType;
  const bool to_ocl = target.device().type() == kType;
  if (from_device && to_ocl) {
    source.device() == target.device() ? within_device(source, target)
                                       : between_devices(source, target);
  } else if (from_device) {
    TORCH_CHECK(target.is_cpu(), "copy from ", source.device(), " to ", target.device(),
                " is not supported. Copy to the CPU first.");
    to_host(source, target);
    tell_idle(source.device().index());
  } else {
    TORCH_CHECK(source.is_cpu(), "copy from ", source.device(), " to ", target.device(),
                " is not supported. Copy to the CPU first.");
    to_device(source, target, non_blocking);
  }
  return target;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  if (target.sizes() != self.sizes()) target.resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  const Tensor host = at::empty({}, self.options().device(at::kCPU));
  read(host.data_ptr(), self.const_data_ptr(), self.itemsize());
  tell_idle(self.device().index());
  return at::_local_scalar_dense(host);
}

}  // namespace ocl

// A selection's launches and its wait take 30 us, and as long again where Python makes them. The
// host reads 16,384 items in 2 us and selects of them in less than that.
#include "fusion/on_host.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <deque>
#include <exception>
#include <optional>

#include "runtime/devices.h"
#include "runtime/graph.h"
#include "runtime/mapped.h"

namespace ocl {

namespace {

using at::Tensor;

// What a call's tensors have in common. Indices alone may lie on the host.
class Given {
 public:
  void add(const Tensor& tensor) {
    if (!tensor.defined()) return;
    items += tensor.numel();
    if (!tensor.is_privateuseone()) return;
    if (device && *device != tensor.device()) fits = false;
    device = tensor.device();
  }

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      fits &= !value.toTensor().defined() || value.toTensor().is_privateuseone();
      return add(value.toTensor());
    }
    if (!value.isOptionalTensorList()) return;
    bool has_mask = false;
    for (const std::optional<Tensor> index : value.toOptionalTensorList()) {
      if (!index) continue;
      add(*index);
      has_mask |= index->defined() && index->scalar_type() == at::kBool;
    }
    fits &= has_mask;
  }

  std::optional<c10::Device> device;
  int64_t items = 0;
  bool fits = true;
};

// Arguments as the host sees them: most in the device's memory. So few bytes are read sooner.
class Seen {
  static constexpr size_t kReadBytes = 512;

 public:
  c10::IValue operator()(const c10::IValue& value) {
    if (value.isTensor()) return seen(value.toTensor());
    if (!value.isOptionalTensorList()) return value;
    c10::List<std::optional<Tensor>> all;
    for (const std::optional<Tensor> index : value.toOptionalTensorList())
      all.push_back(index ? std::optional(seen(*index)) : std::nullopt);
    return all;
  }

 private:
  Tensor seen(const Tensor& tensor) {
    if (!tensor.defined() || tensor.is_cpu()) return tensor;
    const auto options = tensor.options().device(at::kCPU);
    if (!tensor.numel()) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
    const Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    if (dense.nbytes() <= kReadBytes) return dense.to(at::kCPU);
    kept_.push_back(dense);
    mapped_.emplace_back(dense.const_data_ptr(), dense.nbytes(), false);
    return at::from_blob(mapped_.back().data(), dense.sizes(), dense.strides(), options);
  }

  std::deque<Tensor> kept_;
  std::deque<Mapped> mapped_;
};

c10::IValue to_device(const c10::IValue& value, c10::Device device) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const Tensor& found = value.toTensor();
  const Tensor dense = found.is_non_overlapping_and_dense() ? found : found.contiguous();
  const Tensor result =
      at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(device));
  if (!dense.numel()) return result;
  const Mapped mapped(result.const_data_ptr(), result.nbytes(), true);
  std::memcpy(mapped.data(), dense.const_data_ptr(), result.nbytes());
  return result;
}

}  // namespace

bool called_on_host(const c10::OperatorHandle& op, int64_t most, torch::jit::Stack* stack) {
  const size_t arguments = op.schema().arguments().size();
  Given given;
  for (const auto& value : torch::jit::last(*stack, arguments)) given.add(value);
  if (!given.device || !given.fits || given.items > most) return false;
  if (!device_at(given.device->index()).is_processor || graph_here()) return false;
  torch::jit::Stack host;
  {
    Seen seen;
    for (const auto& value : torch::jit::last(*stack, arguments)) host.push_back(seen(value));
    try {
      op.callBoxed(&host);
    } catch (const std::exception&) {  // a number that a dtype cannot hold is no c10::Error
      return false;  // our kernel says what is wrong, or takes what the CPU has no kernel for
    }
  }
  torch::jit::drop(*stack, arguments);
  for (const auto& result : host) stack->push_back(to_device(result, *given.device));
  return true;
}

}  // namespace ocl

#include "fusion/call.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <cstring>

namespace ocl {

namespace {

enum Tag : int64_t {
  kNone,
  kInt,
  kBool,
  kDouble,
  kInts,
  kBools,
  kDoubles,
  kText,
  kList,
  kNumber,
  kTensor,
  kDevice
};

int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Four numbers as one: the second and third are a device and a dtype, below 256.
int64_t packed(int64_t tag, int64_t device, int64_t dtype, int64_t rest) {
  return tag + 256 * (device + 256 * (dtype + 256 * rest));
}

}  // namespace

Call::Call() {
  const auto dtype = c10::typeMetaToScalarType(at::get_default_dtype());
  key.add({packed(at::GradMode::is_enabled(), current_device(), int64_t(dtype), 0)});
}

Call::Call(const torch::jit::Stack& stack, size_t arguments) : Call() {
  for (const auto& value : torch::jit::last(stack, arguments)) {
    if (!known) return;
    add(value);
  }
  end();
}

void Call::end() { known = known && device >= 0 && !at::globalContext().deterministicAlgorithms(); }

void Call::add_none() { key.add({kNone}); }
void Call::add(int64_t number) { key.add({kInt, number}); }
void Call::add(bool truth) { key.add({kBool, truth}); }
void Call::add(double number) { key.add({kDouble, bits_of(number)}); }

// A factory's device, which no operand says before it.
void Call::add(const c10::Device& place) {
  known = known && device < 0 && place.is_privateuseone();
  if (!known) return;
  device = place.has_index() ? place.index() : current_device();
  key.add({kDevice, device});
}

void Call::add(at::IntArrayRef numbers) {
  key.add({kInts, int64_t(numbers.size())});
  key.add(numbers);
}

void Call::add(const at::Scalar& number) {
  if (number.isFloatingPoint()) {
    add(number.toDouble());
  } else if (number.isBoolean()) {
    add(number.toBool());
  } else if (number.isIntegral(false)) {
    add(number.toLong());
  } else {
    known = false;
  }
}

void Call::add(const at::ITensorListRef& tensors) {
  key.add({kList, int64_t(tensors.size())});
  for (const at::Tensor& tensor : tensors) add(tensor);
}

void Call::add(const c10::IValue& value) {
  if (value.isTensor()) {
    add(value.toTensor());
  } else if (value.isNone()) {
    add_none();
  } else if (value.isInt()) {
    add(value.toInt());
  } else if (value.isBool()) {
    add(value.toBool());
  } else if (value.isDouble()) {
    add(value.toDouble());
  } else if (value.isIntList()) {
    const auto items = value.toIntList();
    key.add({kInts, int64_t(items.size())});
    for (const int64_t item : items) key.add({item});
  } else if (value.isBoolList()) {
    const auto items = value.toBoolList();
    key.add({kBools, int64_t(items.size())});
    for (const bool item : items) key.add({item});
  } else if (value.isDoubleList()) {
    const auto items = value.toDoubleList();
    key.add({kDoubles, int64_t(items.size())});
    for (const double item : items) key.add({bits_of(item)});
  } else if (value.isString()) {
    const auto& text = value.toStringRef();
    key.add({kText, int64_t(text.size())});
    for (const char letter : text) key.add({letter});
  } else if (value.isDevice()) {
    add(value.toDevice());
  } else if (value.isList()) {  // of tensors, or what is not understood
    const auto items = value.toListRef();
    key.add({kList, int64_t(items.size())});
    for (const auto& item : items) {
      known = known && (item.isTensor() || item.isNone());
      if (known) add(item);
    }
  } else {
    known = false;  // a generator, a complex number, ...
  }
}

void Call::add(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    add_none();
  } else if (tensor.is_privateuseone()) {
    add_operand(tensor);
  } else if (tensor.is_cpu() && tensor.dim() == 0 && tensor.itemsize() <= sizeof(int64_t)) {
    int64_t bits = 0;
    std::memcpy(&bits, tensor.const_data_ptr(), tensor.itemsize());
    const bool is_wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    key.add({kNumber, int64_t(tensor.scalar_type()), is_wrapped, bits});
  } else {
    known = false;
  }
}

void Call::add_operand(const at::Tensor& tensor) {
  known = known && tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg();
  if (!known) return;  // a sparse tensor has no memory of its own
  known = !c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr());
  const c10::DeviceIndex its = tensor.device().index();
  if (device < 0) device = its;
  key.add({packed(kTensor, its, int64_t(tensor.scalar_type()), tensor.dim())});
  key.add(tensor.sizes());
  key.add(tensor.strides());
  const auto* plain = tensor.unsafeGetTensorImpl();
  // two tensors on the same items are not one tensor: a call may return it
  if (key.add_operand(reinterpret_cast<int64_t>(tensor.const_data_ptr())))
    key.add({std::find(tensors_.begin(), tensors_.end(), plain) - tensors_.begin()});
  tensors_.push_back(plain);
}

}  // namespace ocl

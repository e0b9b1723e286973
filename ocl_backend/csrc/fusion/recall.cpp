// Operators whose calls are recalled (recipe.h); their kernels in Python are those of
// `ocl_plain`, with the same names and schemas.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "fusion/recipe.h"
#include "runtime/deferred.h"

namespace ocl {

namespace {

using at::Tensor;
using torch::jit::Stack;

int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// An operator's call: its key, and whether all of its arguments are understood.
struct Call {
  Key key;
  c10::DeviceIndex device = -1;
  bool known = true;

  Call(const Stack& stack, size_t arguments) {
    key.numbers.reserve(16 * arguments);
    key.add({at::GradMode::is_enabled(), current_device(),
             int64_t(c10::typeMetaToScalarType(at::get_default_dtype()))});
    for (const auto& value : torch::jit::last(stack, arguments)) {
      if (!known) return;
      add(value);
    }
    known = known && device >= 0 && !at::globalContext().deterministicAlgorithms();
  }

 private:
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
    kTensor
  };

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isNone()) {
      key.add({kNone});
    } else if (value.isInt()) {
      key.add({kInt, value.toInt()});
    } else if (value.isBool()) {
      key.add({kBool, value.toBool()});
    } else if (value.isDouble()) {
      key.add({kDouble, bits_of(value.toDouble())});
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

  void add(const Tensor& tensor) {
    if (!tensor.defined()) {
      key.add({kNone});
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

  void add_operand(const Tensor& tensor) {
    known = known && tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg();
    if (!known) return;  // a sparse tensor has no memory of its own
    known = !c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr());
    if (device < 0) device = tensor.device().index();
    key.add({kTensor, int64_t(tensor.scalar_type()), tensor.device().index(), tensor.dim()});
    key.add(tensor.sizes());
    key.add(tensor.strides());
    const auto* plain = tensor.unsafeGetTensorImpl();
    // two tensors on the same items are not one tensor: a call may return it
    if (key.add_operand(reinterpret_cast<int64_t>(tensor.const_data_ptr())))
      key.add({std::find(tensors_.begin(), tensors_.end(), plain) - tensors_.begin()});
    tensors_.push_back(plain);
  }

  c10::SmallVector<const c10::TensorImpl*, 16> tensors_;
};

Tensor new_tensor(const Result& result, const c10::Storage& storage) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(result.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides, result.offset);
  return tensor;
}

// Puts what the recipe's call returned in place of the arguments.
void return_results(const Recipe& recipe, std::vector<c10::DataPtr>& spaces, size_t arguments,
                    Stack* stack) {
  std::vector<c10::Storage> storages(spaces.size() + 1);  // the last: of no bytes
  Stack results;
  for (const Result& result : recipe.results) {
    if (result.argument == Result::kUndefined) {
      results.emplace_back(Tensor());
      continue;
    }
    if (result.argument == Result::kNumber) {
      results.emplace_back(result.number);
      continue;
    }
    if (result.argument != Result::kNew) {
      results.push_back(torch::jit::peek(*stack, size_t(result.argument), arguments));
      continue;
    }
    const bool has_bytes = result.space >= 0;
    auto& storage = storages[has_bytes ? size_t(result.space) : spaces.size()];
    if (!storage) {
      auto memory =
          has_bytes ? std::move(spaces[size_t(result.space)]) : allocate(recipe.device, 0);
      storage = c10::Storage(c10::Storage::use_byte_size_t(), result.bytes, std::move(memory),
                             allocator(), true);
    }
    results.emplace_back(new_tensor(result, storage));
    if (!has_bytes) storage = {};
  }
  torch::jit::drop(*stack, arguments);
  for (auto& result : results) stack->push_back(std::move(result));
}

class Recalled final : public c10::OperatorKernel {
 public:
  explicit Recalled(c10::OperatorHandle plain) : plain_(std::move(plain)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const Named named(op.schema().name().c_str());
    if (Memory::is_suspended()) return run(stack);
    const size_t arguments = op.schema().arguments().size();
    const Call call(*stack, arguments);
    if (!call.known) return run(stack);
    std::vector<c10::IValue> given;
    const auto repeated = [&](const Recipe& recipe, auto& spaces, int status) {
      if (status) raise(status);
      return_results(recipe, spaces, arguments, stack);
      return 0;
    };
    const auto run_here = [&](bool is_noted) {
      if (is_noted) given = torch::jit::last(*stack, arguments).vec();
      run(stack);
      return 0;
    };
    const auto tell = [&](Writer& writer, int64_t) {
      return tell_results(writer, call, given,
                          torch::jit::last(*stack, op.schema().returns().size()));
    };
    repeat_or_learn(memory_, call.key, call.device, repeated, run_here, tell);
  }

 private:
  // Autocast has had its turn: what a kernel calls is not cast again, as it is not in those of
  // torch.
  void run(Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard as_given(c10::autocast_dispatch_keyset);
    plain_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
  }

  static bool tell_results(Writer& writer, const Call& call,
                           const std::vector<c10::IValue>& arguments,
                           at::ArrayRef<c10::IValue> results) {
    for (const auto& result : results)
      if (!writer.add_result(result, arguments)) return false;
    // an operator may have resized an argument, or given it other memory
    const Call after(arguments, arguments.size());
    return after.key.numbers == call.key.numbers && after.key.operands == call.key.operands;
  }

  c10::OperatorHandle plain_;
  Memory& memory_ = *new Memory();  // the dispatcher ends when the runtime of its kernels has
};

}  // namespace

}  // namespace ocl

extern "C" {

// Lets the operator `ns::name.overload` be recalled; that of `ocl_plain` runs it in Python.
void ocl_recall_operator(const char* ns, const char* name, const char* overload) {
  static auto* libraries = new std::map<std::string, torch::Library>();
  const auto plain = c10::Dispatcher::singleton().findSchemaOrThrow(
      (std::string("ocl_plain::") + name).c_str(), overload);
  auto& library = libraries
                      ->try_emplace(ns, torch::Library::IMPL, ns, c10::DispatchKey::PrivateUse1,
                                    __FILE__, __LINE__)
                      .first->second;
  library.impl(*overload ? (std::string(name) + "." + overload).c_str() : name,
               torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ocl::Recalled>(plain)));
}
}

// Operators that models call most, recalled before autograd where no gradient is recorded.
//
// torch's kernels for autograd copy each operand to see whether it has a gradient, and a kernel on
// a stack gets another copy. A copy of a tensor that Python has counts in Python, too, for which it
// takes the interpreter's lock. Here a call that is recalled makes no copy.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/scaled_dot_product_attention_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sub_ops.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "fusion/call.h"
#include "fusion/recall.h"
#include "fusion/results.h"
#include "runtime/deferred.h"

namespace ocl {

namespace {

using at::Tensor;

// Whether forward-mode differentiation has a tangent of an argument.
bool is_dual(const Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->autograd_meta() &&
         tensor._fw_grad(0).defined();
}
bool is_dual(const std::optional<Tensor>& tensor) { return tensor && is_dual(*tensor); }
bool is_dual(const at::ITensorListRef& tensors) {
  for (const Tensor& tensor : tensors)
    if (is_dual(tensor)) return true;
  return false;
}
template <typename T>
bool is_dual(const T&) {
  return false;
}

// Whether something between autograd and the device's kernels wants to see the call.
bool is_seen(c10::DispatchKeySet keys) {
  static constexpr c10::DispatchKeySet kSeeing(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::Conjugate,
       c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor,
       // a transform of torch.func, whose tensors have no memory
       c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  return keys.has_any(kSeeing);
}

template <typename Op, typename Schema = typename Op::schema>
struct Direct;

template <typename Op, typename... Args>
struct Direct<Op, Tensor(Args...)> {
  static inline Memory* memory = nullptr;

  // In place of autograd's kernel.
  static Tensor call(c10::DispatchKeySet keys, Args... args) {
    if (at::GradMode::is_enabled() || is_seen(keys) || (is_dual(args) || ...)) {
      // autograd's own kernel, which a backend of torch's that has no name of its own still has
      const auto below = keys & c10::after_autograd_keyset;
      return Op::redispatch(below.add(c10::DispatchKey::AutogradOther), args...);
    }
    if (auto repeated = repeat(args...)) return std::move(*repeated);
    const at::AutoDispatchBelowADInplaceOrView below;
    return Op::redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);  // or sparse
  }

  // What the call returns, if it is recalled.
  static std::optional<Tensor> repeat(const Args&... args) {
    if (Memory::is_suspended()) return {};
    const Call call = Call::of(args...);
    if (!call.known) return {};
    const auto recipe = memory->look_up(call.key).recipe;
    const Result* only = recipe ? only_result(*recipe) : nullptr;
    const auto counter = only ? take(recipe->drawn) : std::nullopt;
    if (!counter) return {};
    const Named named(Op::name);
    Allocations spaces;
    if (const int status = perform(*recipe, call.key.operands, *counter, spaces)) raise(status);
    return made(*recipe, *only, spaces);
  }

  static void add_to(torch::Library& library) {
    memory = memory_of({Op::name, Op::overload_name});
    if (!memory) return;
    const std::string name = std::string(Op::name).substr(std::string("aten::").size());
    const std::string label = Op::overload_name;
    library.impl((label.empty() ? name : name + "." + label).c_str(), &call);
  }
};

template <typename... Ops>
void add(torch::Library& library) {
  (Direct<Ops>::add_to(library), ...);
}

}  // namespace

}  // namespace ocl

extern "C" {

// Lets these operators be recalled before autograd. Once, behind all `ocl_recall_operator`.
void ocl_recall_before_autograd() {
  using namespace at::_ops;  // NOLINT(google-build-using-namespace): names of a dozen operators
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1,
                         __FILE__, uint32_t(__LINE__));
  ocl::add<_to_copy, add_Tensor, cat, div_Tensor, gelu, linear, mean_dim, mm, mul_Tensor, neg,
           pow_Tensor_Scalar, rsqrt, scaled_dot_product_attention, silu, sub_Tensor>(*library);
}
}

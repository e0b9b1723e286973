// Which scaled_dot_product_attention goes to the device's own kernels; torch composes the rest.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>

namespace {

using at::Tensor;
constexpr int64_t kLargestHead = 256;
// What Python does before the first attention of a subclass of tensors, or null.
std::atomic<void (*)()> before_subclasses{nullptr};

// Whether a transform of torch.func is active. `vmap`, which may be hidden below a gradient, has a
// rule of each operator that torch composes attention of, and none of the device's own.
bool is_transformed() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool has_kernel(const Tensor& query, const Tensor& key, const Tensor& value,
                const std::optional<Tensor>& mask, bool grouped) {
  // of nested tensors even heads may differ, so that they have no size
  if (query.is_nested() || key.is_nested() || value.is_nested()) return false;
  if (is_transformed()) return false;
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  // torch.compile asks with sizes that are symbols; what it cannot know of them counts as untrue
  const auto holds = [](const c10::SymBool& known) { return TORCH_GUARD_OR_FALSE(known); };
  for (const auto* one : {&query, &key, &value})
    if (holds(one->sym_numel().sym_eq(0))) return false;
  const auto type = query.scalar_type();
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  if (key.scalar_type() != type || value.scalar_type() != type) return false;
  // a mask with a gradient needs all scores kept anyway
  if (mask && mask->requires_grad() && c10::GradMode::is_enabled()) return false;
  const auto q = query.sym_sizes(), k = key.sym_sizes(), v = value.sym_sizes();
  const auto equal = [&](const c10::SymInt& one, const c10::SymInt& other) {
    return holds(one.sym_eq(other));
  };
  return equal(q[0], k[0]) && equal(q[0], v[0]) && equal(k[1], v[1]) &&
         (equal(q[1], k[1]) || (grouped && equal(q[1] % k[1], 0))) && equal(k[2], v[2]) &&
         equal(q[3], k[3]) && holds(q[3].sym_le(kLargestHead)) && holds(v[3].sym_le(kLargestHead));
}

int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value,
               const std::optional<Tensor>& mask, double /*dropout*/, bool /*causal*/,
               std::optional<double> /*scale*/, bool grouped) {
  // DTensor needs a rule of the operator that torch calls next
  if (query.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python))
    if (const auto prepare = before_subclasses.load()) prepare();
  const auto& context = at::globalContext();
  // a program for CUDA asks for one of its kernels that keep no scores, as these do
  const bool fused = context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
                     context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP();
  auto chosen = context.userEnabledMathSDP() ? at::SDPBackend::math : at::SDPBackend::error;
  if (fused && has_kernel(query, key, value, mask, grouped)) chosen = at::SDPBackend::overrideable;
  return static_cast<int64_t>(chosen);
}

}  // namespace

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose)

}  // namespace at::native

extern "C" {

// Calls `prepare` whenever attention of a subclass of tensors begins; null: no more.
void ocl_before_subclasses(void (*prepare)()) { before_subclasses.store(prepare); }
}

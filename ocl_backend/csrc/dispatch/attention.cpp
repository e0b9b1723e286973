// Which scaled_dot_product_attention goes to the device's own kernels; torch composes the rest.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/GradMode.h>

namespace {

using at::Tensor;
constexpr int64_t kLargestHead = 256;

bool has_kernel(const Tensor& query, const Tensor& key, const Tensor& value,
                const std::optional<Tensor>& mask, bool grouped) {
  // of nested tensors even heads may differ, so that they have no size
  if (query.is_nested() || key.is_nested() || value.is_nested()) return false;
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  if (!query.numel() || !key.numel() || !value.numel()) return false;
  const auto type = query.scalar_type();
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  if (key.scalar_type() != type || value.scalar_type() != type) return false;
  // a mask with a gradient needs all scores kept anyway
  if (mask && mask->requires_grad() && c10::GradMode::is_enabled()) return false;
  const int64_t heads = query.size(1), shared = key.size(1);
  return query.size(0) == key.size(0) && query.size(0) == value.size(0) &&
         shared == value.size(1) && (heads == shared || (grouped && heads % shared == 0)) &&
         key.size(2) == value.size(2) && query.size(3) == key.size(3) &&
         query.size(3) <= kLargestHead && value.size(3) <= kLargestHead;
}

int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value,
               const std::optional<Tensor>& mask, double /*dropout*/, bool /*causal*/,
               std::optional<double> /*scale*/, bool grouped) {
  const bool own = at::globalContext().userEnabledOverrideableSDP() &&
                   has_kernel(query, key, value, mask, grouped);
  return static_cast<int64_t>(own ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose)

}  // namespace at::native

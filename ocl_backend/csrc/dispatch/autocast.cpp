// Mixed precision: which operators `torch.autocast("ocl")` runs in half precision, which in fp32.
// The lists, the casts and the cache of cast weights are torch's, the same as CUDA's. No kernel is
// defined here. It alone includes ATen/autocast_mode.h, with all operators of torch the unit that
// takes longest to compile.
#include <ATen/autocast_mode.h>

#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FLOAT32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

namespace at {  // torch's lists name types without it
namespace {

// With a gradient of up to 1e12 it does not fit fp16, so accelerators refuse it under autocast.
Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                   int64_t) {
  TORCH_CHECK(false,
              "binary_cross_entropy and BCELoss are unsafe to autocast. Leave the sigmoid "
              "before it to binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are "
              "safe, or call it within torch.autocast(\"ocl\", enabled=False).");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {  // torch's macros want the name m
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(WIDEST)
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace
}  // namespace at

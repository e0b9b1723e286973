// Runs what has no kernel here on the CPU and counts it by operator.
// The policy (warn once, or refuse) belongs to the Python module `ocl_backend.fallback`.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <sstream>

namespace {

std::mutex mutex;
std::map<std::string, int64_t>& counts() {
  static auto* table = new std::map<std::string, int64_t>();
  return *table;
}
bool refuse = false;

// Returns whether this is the operator's first time.
bool count(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex);
  return ++counts()[name] == 1;
}

bool is_generator(const c10::Argument& argument) {
  const auto type = argument.type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

c10::Device device_of(const torch::jit::Stack& stack) {
  for (const auto& value : stack) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_privateuseone())
      return value.toTensor().device();
    if (value.isDevice() && value.toDevice().is_privateuseone()) return value.toDevice();
  }
  return {c10::DeviceType::PrivateUse1, -1};
}

// A CPU operator draws from a CPU generator: one that this device's generator determines.
void replace_generators(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_generator(arguments[i])) continue;
    auto& value = stack[first + i];
    auto chosen = value.isNone() ? std::optional<at::Generator>() : value.to<at::Generator>();
    if (chosen && chosen->device().is_cpu()) continue;
    at::Generator source =
        chosen ? *chosen
               : at::detail::getPrivateUse1Hooks().getDefaultGenerator(device_of(stack).index());
    const std::lock_guard<std::mutex> lock(source.mutex());
    // the offset of a multiple of 4 keeps the counter's alignment for the kernels that share it
    const uint64_t offset = source.get_offset();
    source.set_offset(offset + 4);
    value = at::detail::createCPUGenerator(source.current_seed() + 0x9E3779B97F4A7C15ull * offset);
  }
}

void to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      !refuse, name, " has no ocl kernel and OCLGEN_FALLBACK=error forbids running it on the CPU. "
      "Unset the variable, or register a kernel for it.");
  if (count(name))
    TORCH_WARN(name, " has no ocl kernel yet and runs on the CPU, with copies both ways. "
               "torch.ocl.fallbacks() counts such calls; OCLGEN_FALLBACK=error forbids them.");
  replace_generators(op, *stack);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&to_cpu>());
}

extern "C" {

void ocl_fallback_refuse(int on) { refuse = on != 0; }

void ocl_fallback_reset() {
  const std::lock_guard<std::mutex> lock(mutex);
  counts().clear();
}

// Lines of "name count"; valid until the thread's next call.
const char* ocl_fallback_counts() {
  thread_local std::string text;
  std::ostringstream lines;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [name, times] : counts()) lines << name << ' ' << times << '\n';
  text = lines.str();
  return text.c_str();
}
}

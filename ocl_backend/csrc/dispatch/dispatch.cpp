// What goes through torch's dispatcher: the table of the shim's operators, and the fallback that
// runs an operator without a kernel on the CPU and counts it. It, `recall.cpp` and `autocast.cpp`
// alone include torch/library.h, which takes longer to compile than everything else here.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "dispatch/operators.h"
#include "fusion/recipe.h"
#include "runtime/graph.h"

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
  const auto& type = argument.type();
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
    at::Generator source = chosen ? *chosen : ocl::default_generator(device_of(stack).index());
    const std::lock_guard<std::mutex> lock(source.mutex());
    // the offset of a multiple of 4 keeps the counter's alignment for the kernels that share it
    const uint64_t offset = source.get_offset();
    source.set_offset(offset + 4);
    value = at::detail::createCPUGenerator(source.current_seed() + 0x9E3779B97F4A7C15ull * offset);
  }
}

// Refuses a run on the CPU, or counts it and warns the first time. That is no part of a recipe.
void note(const std::string& name) {
  ocl::note_other();
  if (const auto graph = ocl::graph_here())
    ocl::raise(graph->refuse(name + " has no ocl kernel and runs on the CPU, which a graph cannot "
                                    "contain. Leave it out of the capture"));
  TORCH_CHECK_NOT_IMPLEMENTED(
      !refuse, name,
      " has no ocl kernel and OCLGEN_FALLBACK=error forbids running it on the CPU. "
      "Unset the variable, or register a kernel for it.");
  if (count(name)) {
    TORCH_WARN(name,
               " has no ocl kernel yet and runs on the CPU, with copies both ways. "
               "torch.ocl.fallbacks() counts such calls; OCLGEN_FALLBACK=error forbids them.");
  }
}

// An operator on complex numbers counts apart: it may have a kernel for real ones.
const char* mark(const torch::jit::Stack& stack) {
  for (const auto& value : stack)
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_complex())
      return " complex";
  return "";
}

// Indices and lengths may lie on the CPU, as torch allows with every device, and so may numbers.
void check_on_one_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const c10::Device device = device_of(stack);
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    const bool fits = tensor.device() == device || tensor.dim() == 0 ||
                      (tensor.is_cpu() && !tensor.is_floating_point());
    TORCH_CHECK(fits,
                "Expected all tensors to be on the same device, but found at least two "
                "devices, ",
                device, " and ", tensor.device(), "! (when calling ",
                c10::toString(op.operator_name()), ") Move them with .to().");
  }
}

// An extension may have its operator for CUDA alone, and then not even the CPU can serve it.
void check_cpu_serves(const c10::OperatorHandle& op) {
  const auto has = [&op](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  TORCH_CHECK_NOT_IMPLEMENTED(
      has(c10::DispatchKey::CPU) || has(c10::DispatchKey::CompositeExplicitAutograd) ||
          has(c10::DispatchKey::CompositeImplicitAutograd) ||
          has(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
          !has(c10::DispatchKey::CUDA),
      c10::toString(op.operator_name()),
      " has a kernel for CUDA alone, which no OpenCL device can run. Choose the library's "
      "implementation in PyTorch, or give the operator a kernel with torch.library.impl for "
      "\"ocl\" or \"cpu\".");
}

// torch factorizes a contiguous real matrix as its transpose, and the gradient of a determinant
// looks at the matrix to know whether it did. The CPU's copy of one with gaps would be contiguous.
void keep_whether_contiguous(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  if (name != "aten::_linalg_det" && name != "aten::_linalg_slogdet") return;
  c10::IValue& first = stack[stack.size() - op.schema().arguments().size()];
  const at::Tensor& matrix = first.toTensor();
  if (!matrix.is_contiguous()) first = matrix.mT().contiguous().mT();
}

void to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_on_one_device(op, *stack);
  check_cpu_serves(op);
  note(c10::toString(op.operator_name()) + mark(*stack));
  replace_generators(op, *stack);
  keep_whether_contiguous(op, *stack);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// Torch's kernels for nested tensors of strided layout call operators on the memory of all items,
// so those that it registers for HPU, a backend outside of its tree, serve any device; so do these.
const std::set<std::string> kNestedOnAnyDevice = {"aten::_nested_tensor_storage_offsets",
                                                  "aten::bmm", "aten::to_padded_tensor"};

// ops/norm/nested_layer_norm.py and ops/sequence/transformer.py serve these: torch's call a kernel
// by a table of its own devices, or operators that it has for them alone.
const std::set<std::string> kNestedOnTorchsDevices = {
    "aten::native_layer_norm", "aten::native_layer_norm_backward",
    "aten::_native_multi_head_attention", "aten::_transformer_encoder_layer_fwd"};

c10::DispatchKey nested_key(const c10::OperatorName& name) {
  return kNestedOnAnyDevice.count(name.name) ? c10::DispatchKey::NestedTensorCPU
                                             : c10::DispatchKey::NestedTensorHPU;
}

void run_nested(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(nested_key(op.operator_name())), stack);
}

// After a NotImplementedError torch tries something else, and so the message would be lost.
void refuse_nested(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, c10::toString(op.operator_name()),
              " has no kernel for nested tensors on ocl "
              "devices. Use tensor.to_padded_tensor(0) with a mask, tensor.unbind(), or move the "
              "nested tensor to the CPU.");
}

}  // namespace

namespace ocl {

void strided_copy(const at::Tensor& source, const at::Tensor& target) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ocl::strided_copy", "")
                             .typed<void(const at::Tensor&, const at::Tensor&)>();
  op.call(source, target);
}

namespace {

// Takes `count` counters of a generator, or else of the device's own, and returns its seed and the
// first of them. Only the device's own is noted: a recipe would have to hold any other one.
std::tuple<int64_t, int64_t> reserve(const std::optional<at::Generator>& given, int64_t device,
                                     int64_t count) {
  const at::Generator& own = default_generator(c10::DeviceIndex(device));
  c10::GeneratorImpl* source = (given ? *given : own).unsafeGetGeneratorImpl();
  TORCH_CHECK(source->device().is_privateuseone(), "a generator of device ", source->device(),
              " cannot fill a tensor on ocl:", device, "; use torch.Generator('ocl')");
  if (const auto graph = graph_here(c10::DeviceIndex(device))) {
    note_other();
    return graph->draw((given ? *given : own).getIntrusivePtr(), uint64_t(count));
  }
  const std::lock_guard<std::mutex> lock(source->mutex_);
  const Drawn drawn{source, source->current_seed(), source->get_offset(), uint64_t(count)};
  source->set_offset(drawn.first + drawn.count);
  source == own.unsafeGetGeneratorImpl() ? note_drawn(drawn) : note_other();
  return {int64_t(drawn.seed), int64_t(drawn.first)};
}

}  // namespace

}  // namespace ocl

TORCH_LIBRARY(ocl, library) {
  library.def("strided_copy(Tensor source, Tensor(a!) target) -> ()");
  library.def("note_fallback(str name) -> ()", [](const std::string& name) { note(name); });
  library.def("default_generator(int device) -> Generator?",
              [](int64_t index) { return ocl::default_generator(c10::DeviceIndex(index)); });
  // releases the interpreter's lock, as every operator
  library.def("replay_graph(int graph) -> ()", [](int64_t graph) {
    const auto& replayed = *reinterpret_cast<std::shared_ptr<ocl::Graph>*>(graph);
    if (const int status = replayed->replay()) ocl::raise(status);
  });
  library.def("reserve(Generator? generator, int device, int count) -> (int, int)", ocl::reserve);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(ocl::empty));
  library.impl("empty_strided", TORCH_FN(ocl::empty_strided));
  library.impl("scalar_tensor", TORCH_FN(ocl::scalar_tensor));
  library.impl("arange", TORCH_FN(ocl::arange));
  library.impl("arange.start", TORCH_FN(ocl::arange_start));
  library.impl("arange.start_step", TORCH_FN(ocl::arange_step));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("resize_", TORCH_FN(ocl::resize_));
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  library.impl("set_", TORCH_FN(ocl::set_empty_));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("set_.source_Storage", TORCH_FN(ocl::set_whole_storage_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(ocl::set_storage_));
  library.impl("_copy_from", TORCH_FN(ocl::copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(ocl::copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(ocl::local_scalar_dense));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(ocl::takes_memory_of));
  // each device has one in-order queue: no block is reused ahead of its readers
  library.impl("record_stream", [](at::Tensor&, c10::Stream) {});
}

// Here too, as on torch's own devices: a tensor of a class in Python would otherwise be asked.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(ocl::takes_memory_of));
}

// torch would clone a lazily conjugated or negated tensor before a copy, and clone by this copy.
// It would also write to a clone of the target: the schemas do not say that one is written to.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
  library.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
  library.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&to_cpu>());
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_nested>());
}

// Each by name: for nested tensors of a backend, torch would rather decompose `linear` and others.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0 || kNestedOnTorchsDevices.count(name.name)) continue;
    const auto op = dispatcher.findSchema(name);
    if (op && op->hasKernelForDispatchKey(nested_key(name)))
      library.impl(c10::toString(name).c_str(),
                   torch::CppFunction::makeFromBoxedFunction<&run_nested>());
  }
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

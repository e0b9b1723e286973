// Operators whose calls are recalled (recipe.h). A call that is not runs in Python, or as torch
// composes it.
#include "fusion/recall.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <map>
#include <unordered_map>

#include "fusion/call.h"
#include "fusion/results.h"
#include "runtime/deferred.h"

namespace ocl {

namespace {

using torch::jit::Stack;

// A backend without kernels: its calls run what torch composes of other operators.
constexpr auto kComposed = c10::DispatchKey::PrivateUse3;

class Recalled final : public c10::OperatorKernel {
 public:
  // `plain` makes the call where it is not recalled, by its kernel for `key`.
  Recalled(c10::OperatorHandle plain, c10::DispatchKey key) : plain_(std::move(plain)), key_(key) {}

  Memory& memory() { return memory_; }

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
    plain_.redispatchBoxed(c10::DispatchKeySet(key_), stack);
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
  c10::DispatchKey key_;
  Memory& memory_ = *new Memory();  // the dispatcher ends when the runtime of its kernels has
};

torch::Library& library_of(const char* ns) {
  static auto* libraries = new std::map<std::string, torch::Library>();
  return libraries
      ->try_emplace(ns, torch::Library::IMPL, ns, c10::DispatchKey::PrivateUse1, __FILE__,
                    uint32_t(__LINE__))
      .first->second;
}

std::unordered_map<c10::OperatorName, Memory*>& memories_by_operator() {
  static auto* all = new std::unordered_map<c10::OperatorName, Memory*>();
  return *all;
}

}  // namespace

Memory* memory_of(const c10::OperatorName& name) {
  const auto found = memories_by_operator().find(name);
  return found == memories_by_operator().end() ? nullptr : found->second;
}

}  // namespace ocl

extern "C" {

// Lets the operator `ns::name` be recalled. A call that is not recalled runs in Python, by the
// operator of that name in `ocl_plain`; if it is `composed`, by what torch composes it of.
void ocl_recall_operator(const char* ns, const char* name, const char* overload, int composed) {
  const std::string space = composed ? ns : "ocl_plain";
  const auto plain =
      c10::Dispatcher::singleton().findSchemaOrThrow((space + "::" + name).c_str(), overload);
  const auto full = *overload ? std::string(name) + "." + overload : name;
  const auto key = composed ? ocl::kComposed : c10::DispatchKey::PrivateUse1;
  auto recalled = std::make_unique<ocl::Recalled>(plain, key);
  ocl::memories_by_operator()[{std::string(ns) + "::" + name, overload}] = &recalled->memory();
  ocl::library_of(ns).impl(full.c_str(),
                           torch::CppFunction::makeFromBoxedFunctor(std::move(recalled)));
}
}

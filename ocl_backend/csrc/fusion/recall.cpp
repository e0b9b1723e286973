// Operators that Python serves, most of whose calls are recalled (recipe.h). A call that is not
// runs in Python, or as torch composes it.
#include "fusion/recall.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <unordered_map>

#include "fusion/call.h"
#include "fusion/on_host.h"
#include "fusion/results.h"
#include "runtime/deferred.h"
#include "runtime/interpreter.h"

namespace ocl {

namespace {

using torch::jit::Stack;

// A backend without kernels: its calls run what torch composes of other operators.
constexpr auto kComposed = c10::DispatchKey::PrivateUse3;

// Defines an operator in a namespace of ours, by the name of the one that it serves; tells a
// `Status`.
void (*define_in_python)(const char* space, const char* name, int* status) = nullptr;

// The operator whose kernel for `key` is ours, in Python. A process calls few of 1,400 operators,
// and to define one takes 0.2 ms: Python is asked at its first call.
class Plain {
 public:
  Plain(std::string ns, std::string name, std::string overload, c10::DispatchKey key)
      : ns_(std::move(ns)), name_(std::move(name)), overload_(std::move(overload)), key_(key) {
    if (key == kComposed) found_ = found_in(ns_);  // torch's own
  }

  void call(Stack* stack) { found().redispatchBoxed(c10::DispatchKeySet(key_), stack); }

 private:
  const c10::OperatorHandle& found() {
    const auto* known = found_.load(std::memory_order_acquire);
    if (known) return *known;
    // no lock: Python has one, and lets go of the interpreter's while it waits there
    const auto space = std::string("ocl_") + c10::toString(key_);
    const Uninterrupted whole;
    int status = kFailed;
    define_in_python(space.c_str(), (ns_ + "::" + name_ + "." + overload_).c_str(), &status);
    if (status) raise(fail(status, python_error()));
    found_.store(known = found_in(space), std::memory_order_release);
    return *known;
  }

  // Kept for ever: the dispatcher ends when threads may still call.
  const c10::OperatorHandle* found_in(const std::string& ns) const {
    return new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(
        (ns + "::" + name_).c_str(), overload_.c_str()));
  }

  const std::string ns_, name_, overload_;
  const c10::DispatchKey key_;
  std::atomic<const c10::OperatorHandle*> found_{nullptr};
};

// Makes every call in Python.
class Served final : public c10::OperatorKernel {
 public:
  explicit Served(std::unique_ptr<Plain> plain) : plain_(std::move(plain)) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    plain_->call(stack);
  }

 private:
  std::unique_ptr<Plain> plain_;
};

class Recalled final : public c10::OperatorKernel {
 public:
  // `plain` makes the call where it is not recalled, nor of so few items that the host makes it.
  Recalled(std::unique_ptr<Plain> plain, int64_t most_on_host)
      : plain_(std::move(plain)), most_on_host_(most_on_host) {}

  Memory& memory() { return memory_; }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const Named named(op.schema().name().c_str());
    if (most_on_host_ && called_on_host(op, most_on_host_, stack)) return;
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
    plain_->call(stack);
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

  std::unique_ptr<Plain> plain_;
  const int64_t most_on_host_;
  Memory& memory_ = *new Memory();  // the dispatcher ends when the runtime of its kernels has
};

template <typename Kernel>
void implement(const char* ns, const char* name, const char* overload, c10::DispatchKey key,
               std::unique_ptr<Kernel> kernel) {
  static auto* libraries = new std::map<std::pair<std::string, c10::DispatchKey>, torch::Library>();
  auto& library =
      libraries->try_emplace({ns, key}, torch::Library::IMPL, ns, key, __FILE__, uint32_t(__LINE__))
          .first->second;
  library.impl((*overload ? std::string(name) + "." + overload : name).c_str(),
               torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
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

// Before the first `ocl_recall_operator` and `ocl_serve_operator`.
void ocl_define_operators_with(void (*define)(const char* space, const char* name, int* status)) {
  ocl::define_in_python = define;
}

// Lets the operator `ns::name` be recalled. A call that is not recalled runs in Python, or, if it
// is `composed`, by what torch composes it of. One of up to `most_on_host` items runs on the host
// of a processor.
void ocl_recall_operator(const char* ns, const char* name, const char* overload, int composed,
                         int64_t most_on_host) {
  const auto key = composed ? ocl::kComposed : c10::DispatchKey::PrivateUse1;
  auto plain = std::make_unique<ocl::Plain>(ns, name, overload, key);
  auto recalled = std::make_unique<ocl::Recalled>(std::move(plain), most_on_host);
  ocl::memories_by_operator()[{std::string(ns) + "::" + name, overload}] = &recalled->memory();
  ocl::implement(ns, name, overload, c10::DispatchKey::PrivateUse1, std::move(recalled));
}

// Lets calls of the operator `ns::name` with this dispatch key run in Python.
void ocl_serve_operator(const char* ns, const char* name, const char* overload, const char* key) {
  const auto parsed = c10::parseDispatchKey(key);
  auto plain = std::make_unique<ocl::Plain>(ns, name, overload, parsed);
  ocl::implement(ns, name, overload, parsed, std::make_unique<ocl::Served>(std::move(plain)));
}
}

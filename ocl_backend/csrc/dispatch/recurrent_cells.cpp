// Forward gradients of an LSTM's and a GRU's step: torch has none of the fused operators that it
// calls on devices of its own and on this one, so a step with tangents is composed of others.
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

namespace {

using at::Tensor;
constexpr size_t kArguments = 5;

// Biases that a cell lacks are undefined tensors.
bool is_given(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

bool has_tangent(const c10::IValue& value) {
  return is_given(value) && value.toTensor()._fw_grad(0).defined();
}

Tensor plus(const c10::IValue& gates, const c10::IValue& bias) {
  return is_given(bias) ? gates.toTensor() + bias.toTensor() : gates.toTensor();
}

// Hidden state, cell state, and what stands for the values that the fused step keeps.
std::vector<Tensor> lstm(const Tensor& of_input, const Tensor& of_hidden, const Tensor& cell) {
  const Tensor sums = of_input + of_hidden;
  const auto gates = sums.chunk(4, 1);
  const Tensor next = at::sigmoid(gates[1]) * cell + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  return {at::sigmoid(gates[3]) * at::tanh(next), next, sums.detach()};
}

// Hidden state, and what stands for the values that the fused step keeps.
std::vector<Tensor> gru(const Tensor& of_input, const Tensor& of_hidden, const Tensor& hidden) {
  const auto x = of_input.chunk(3, 1), h = of_hidden.chunk(3, 1);
  const Tensor fresh = at::tanh(x[2] + at::sigmoid(x[0] + h[0]) * h[2]);
  return {fresh + at::sigmoid(x[1] + h[1]) * (hidden - fresh), of_input.detach()};
}

template <std::vector<Tensor> (*compose)(const Tensor&, const Tensor&, const Tensor&)>
void step(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto given = torch::jit::last(*stack, kArguments);
  if (std::none_of(given.begin(), given.end(), has_tangent))
    return op.callBoxedForDispatchKey(c10::DispatchKey::Autograd, *stack);
  const auto made =
      compose(plus(given[0], given[3]), plus(given[1], given[4]), given[2].toTensor());
  torch::jit::drop(*stack, kArguments);
  stack->insert(stack->end(), made.begin(), made.end());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", torch::CppFunction::makeFromBoxedFunction<&step<lstm>>());
  library.impl("_thnn_fused_gru_cell", torch::CppFunction::makeFromBoxedFunction<&step<gru>>());
}

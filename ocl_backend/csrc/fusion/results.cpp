#include "fusion/results.h"

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace ocl {

namespace {

at::Tensor new_tensor(const Result& result, c10::Storage storage) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(result.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides, result.offset);
  return tensor;
}

c10::Storage storage_of(const Recipe& recipe, const Result& result, Allocations& spaces) {
  auto memory =
      result.space >= 0 ? std::move(spaces[size_t(result.space)]) : allocate(recipe.device, 0);
  return c10::Storage(c10::Storage::use_byte_size_t(), result.bytes, std::move(memory), allocator(),
                      true);
}

// A result that is no list. Those of one space share its storage.
c10::IValue one_of(const Recipe& recipe, const Result& result, Allocations& spaces,
                   std::vector<c10::Storage>& storages, size_t arguments,
                   const torch::jit::Stack& stack) {
  if (result.argument == Result::kUndefined) return at::Tensor();
  if (result.argument == Result::kNumber) return result.number;
  if (result.argument != Result::kNew)
    return torch::jit::peek(stack, size_t(result.argument), arguments);
  c10::Storage empty;  // no two results share it
  auto& storage = result.space >= 0 ? storages[size_t(result.space)] : empty;
  if (!storage) storage = storage_of(recipe, result, spaces);
  return new_tensor(result, storage);
}

}  // namespace

const Result* only_result(const Recipe& recipe) {
  const bool is_only = recipe.results.size() == 1 && recipe.results[0].argument == Result::kNew;
  return is_only ? recipe.results.data() : nullptr;
}

at::Tensor made(const Recipe& recipe, const Result& result, Allocations& spaces) {
  return new_tensor(result, storage_of(recipe, result, spaces));
}

void return_results(const Recipe& recipe, Allocations& spaces, size_t arguments,
                    torch::jit::Stack* stack) {
  if (const Result* only = only_result(recipe)) {
    auto tensor = made(recipe, *only, spaces);
    torch::jit::drop(*stack, arguments);
    stack->emplace_back(std::move(tensor));
    return;
  }
  std::vector<c10::Storage> storages(spaces.size());
  torch::jit::Stack results;
  for (size_t at = 0; at < recipe.results.size(); ++at) {
    const Result& result = recipe.results[at];
    if (result.argument != Result::kList) {
      results.push_back(one_of(recipe, result, spaces, storages, arguments, *stack));
      continue;
    }
    c10::List<at::Tensor> tensors;
    for (const size_t end = at + size_t(result.number); at < end;)
      tensors.push_back(
          one_of(recipe, recipe.results[++at], spaces, storages, arguments, *stack).toTensor());
    results.emplace_back(std::move(tensors));
  }
  torch::jit::drop(*stack, arguments);
  for (auto& result : results) stack->push_back(std::move(result));
}

}  // namespace ocl

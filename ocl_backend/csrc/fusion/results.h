// What a call returns that is repeated by its recipe.
#pragma once

#include "fusion/recipe.h"

namespace ocl {

// The only result of a recipe, if that is a new tensor, as mostly; else null.
const Result* only_result(const Recipe& recipe);
// Makes a new tensor of the memory that a recipe's steps wrote.
at::Tensor made(const Recipe& recipe, const Result& result, Allocations& spaces);
// Puts what the recipe's call returned in place of the arguments on a stack.
void return_results(const Recipe& recipe, Allocations& spaces, size_t arguments,
                    torch::jit::Stack* stack);

}  // namespace ocl

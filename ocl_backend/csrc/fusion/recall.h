// The memory of an operator whose calls are recalled.
#pragma once

#include <ATen/core/operator_name.h>

#include "fusion/recipe.h"

namespace ocl {

// Null: its calls are not recalled.
Memory* memory_of(const c10::OperatorName& name);

}  // namespace ocl

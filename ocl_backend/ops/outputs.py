"""The `out=` forms of operators, made from the functional ones.

For operators whose result is made anew anyway; hot operators write to `out` themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def into(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Return the form of `function` that writes its results to the keyword arguments `names`.

    The default name is `out`. Outputs are resized to fit, and take the results' values in their
    own dtype.
    """
    names = names or ("out",)

    def run(*args: Any, **kwargs: Any) -> Any:
        outputs = [kwargs.pop(name) for name in names]
        results = function(*args, **kwargs)
        given = [results] if isinstance(results, Tensor) else results
        for output, result in zip(outputs, given, strict=True):
            output.resize_(result.shape).copy_(result)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run

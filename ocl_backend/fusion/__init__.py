"""Recall and held chains: calls that run without Python, and launches that become one kernel.

    torch calls an operator
      | recalled (recall.cpp): its recipe is sure -> perform, without Python
      | else: the operator in Python, noted
      v
    ocl::enqueue (held.cpp)
      | the call has a Rule -> the chain holds it back: links that read one another's results
      | else: the chain runs first, then the launch
      v
    the device's queue

Who forgets what, and which threads and locks there are: docs/fusion.md.

`recall` registers operators whose calls are recalled, `held` is the chain. How a chain becomes one
kernel, the rules in `ocl_backend/ops/fused` know: they belong to the operators.
"""

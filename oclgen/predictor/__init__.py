"""Predicts how long an unmeasured variant takes, from what problem, plan and device are.

`features` describes, `model` predicts. The models are files beside them, one for each kind of
device, which `python -m benchmarks fit` makes of measured tables.
"""

"""Predicts the time of an unmeasured variant from problem, plan and device.

`features` describes a variant, `model` predicts. The models are files in this folder, one for each
kind of device; `python -m benchmarks fit` makes them from measured tables.
"""

"""Gaussian state-space atoms: pure functions of arrays.

From the ground up: `kalman` (one linear filter and smoother) and its `likelihood`; `moments` (what a drift does to a
Gaussian belief), `transition` (one step in time), `filter` (filter and smoother over a series) and its `innovations`;
`variational` (the nearest Gaussian process to the posterior); `grid` (the exact likelihood of one state).
"""

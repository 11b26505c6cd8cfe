"""Continuous-discrete Gaussian filtering of dx = f(t, x) dt + G dw: pure functions of arrays.

From the ground up: `moments` (what a drift does to a cloud of states), `transition` (one step in
time), `gaussian` (filter and smoother over a series), `scoring` (maximum likelihood), `starts` (where
to begin). `exact` and `grid` are references that need no Gaussian assumption or no approximation.
"""

"""The experiments of the paper: problems, a plan of cells, one cell to rows, and where those rows came from.

`plan.build(...)` says what is to be run, `run.run(results, plan, runner)` runs what is missing, and
`sdefit.report` makes a page of the folder. The two rooms meet in files only.
"""

"""`./pipeline prove`: the user's own pipeline under every fault at every hop, compared with a clean run.

cells.py     which faults there are: made from the calls of a clean run
trial.py     one run of the pipeline on a chain of its own, and what it left behind
oracle.py    what two runs have to agree in, and how a difference is said
proof.py     two clean runs, then every cell, on several chains at once
grid.py      the result on the terminal; page.py as one HTML page; junit.py for CI
command.py   the command
"""

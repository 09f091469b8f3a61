"""The fuzz room: odd command lines, files, checkpoints and arguments, in-process and in a sandbox.

    make fuzz FUZZ=100000                    or: python -m tests.fuzz 100000 --seconds 600 --seed 1

Every case must end well or with one line; a traceback, more than ten seconds, a law that is none, or a file of the
user's that changed is a finding. `tests/test_fuzz.py` runs a few hundred cases of each kind.
"""

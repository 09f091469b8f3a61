"""The claims of the paper, and ours, as data; and the judge.

paper       every statement of the paper, with the needs that it states
ours        what we ask beyond the paper
quantities  what a need measures: one threshold for one quantity, with its reason
judge       compares tables with needs; the only module that does
"""

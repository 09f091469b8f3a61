"""The compiled kernels of the disentangled transformer: forward, backward, Adam, and the training loop around them.

The maths is exact. Tokens are one-hot, so a copy head's attention exp(W[x_i, x_j] + r_{i-j}) factorises: with

    C_m(i) = sum over j <= i with x_j = m of exp(r_{i-j}),

the share of symbol m in the head's output at position i is exp(W[x_i, m]) C_m(i), normalised over m. Building C takes
additions only, and its gradient is the mirror image: d exp(r)_d = sum over j of dC_{x_j}(j + d). BOS is one more
symbol, with value 1/|V| everywhere; it occurs once, at position 0, where it attends only to itself. Its key score
against a query token a is therefore the mean of W[a, :]. Of the match layer only the last query is needed, because
only the last position carries a loss (eq:icl_optimization_markov).

No FFT is used: its absolute error is larger than the tails of sharp heads. For the same reason a position whose
normaliser is tiny (a sharp head whose lag lies before the start of the sequence) is computed directly, with its own
maximum.

    simd          eight numbers at a time
    memory        where parameters and activations lie
    step          what is done once per step: tables of exponentials before it, mean gradients after it
    by_symbol     rows over positions, by the symbol that stands there
    copy_heads    the copy heads, forward and backward
    match_head    the match head
    readout       the readout and the loss
    symmetry      the mean of a gradient over all relabelings
    loop          one sequence, a batch, and the training loop

Numba's cache notices changes of the file that holds a compiled function, not of those it calls: after an edit here or
in `interp.chains.urn`, remove the `__pycache__` folders below models/.
"""

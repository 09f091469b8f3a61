"""The standard family (sec:models), trained fast: only what the last token needs.

    config = parameters.standard_config(order=2, vocab=5, length=64, bos=True)
    flat = parameters.flattened(config, parameters.init_standard(config, seed=0))
    loss, gradient = loss_and_gradient(config, flat, tokens, laws)                # `loss`
    model = parameters.to_hooked(config, flat)                                    # an InductionTransformer

The maths is exact: loss and gradients are those of the HookedTransformer of the same weights.

- The copy layer reads symbols, of which there are |V| + 1, so its LayerNorm, queries, keys and values are tables.
  With C_m(i) = sum over j <= i with x_j = m of exp(r_{i-j}), the share of symbol m in a head's output at position i
  is exp(S[x_i, m]) C_m(i), normalised over m. C is one product of a Toeplitz matrix with the one-hot tokens. Row i
  of the matrix is taken relative to its own largest bias, so no row underflows, however sharp the head.
- Every read of the stream is behind a LayerNorm, which does not see the mean: all writes are centred beforehand, and
  a LayerNorm is then a division by a root mean square. The stream after the copy heads is linear in (one-hot token,
  shares), (k+1)(|V|+1) numbers, so the first matrix of the MLP is applied to those.
- Of the match layer only the last query is needed. It is carried into the stream (W_K q), rather than every key out
  of it, and values are averaged before W_V. The bias b_K adds a constant to all scores of a query, which the softmax
  does not see: its gradient is zero.

Arrays are [feature, row], with rows over (sequence, position): long contiguous inner loops.

    parameters    config, start, and the flat vector of parameters
    copy_layer    tables, symbol counts, and the stream after the copy layer
    match_layer   from that stream to logits
    loss          loss, gradients and predictions
    trainer       a run
"""

"""The disentangled family (sec:models): one-hot blocks, every W_A, every relative bias and W_O free.

weights     config, starts, the flat vector of parameters, and the way to and from a HookedTransformer
training    loss, gradient, predictions and training of that vector, and a run of it
kernels     the compiled code behind them
"""

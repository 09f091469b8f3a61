"""Where a circuit sits in a model, and how the model is run, read and edited there."""

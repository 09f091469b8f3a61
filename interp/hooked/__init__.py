"""The suite's own models as HookedTransformers: their config, analytic weights, and checkpoints on disk."""

"""The questions: one module each, checkpoint in, result table out."""

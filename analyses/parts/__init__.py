"""What several analyses share: predictors, held-out sequences, grids of worlds."""

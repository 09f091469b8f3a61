"""The paper's claims, one function each: `(seed, batch) -> Claim`. `analyses.theory` runs them all."""

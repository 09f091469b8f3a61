"""The paper's claims, one function each: `(seed, batch) -> Claim`. `analyses.studies.theory` runs them all."""

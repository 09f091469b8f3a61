"""Markov-chain priors, and sequences drawn from them."""

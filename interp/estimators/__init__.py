"""Estimators from counts: soft matching and its limits, classical smoothers, Bayes, the population optimum."""

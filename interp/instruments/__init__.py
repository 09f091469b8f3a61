"""One module for each question about a circuit. Each returns a result that says whether it can be trusted."""

"""One module a question to a circuit; each returns a result that says whether it can be trusted."""

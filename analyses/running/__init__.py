"""How analyses are run: command line, cache, plan, processes, reports."""

"""From a run's description to its checkpoint: starts, protocols, runs and sweeps."""

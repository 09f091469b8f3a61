"""The families of models, one module or folder each."""

"""Notebooks run with nbmake, from their .ipynb; their .py twins are not modules to import."""

collect_ignore_glob = ["*.py"]

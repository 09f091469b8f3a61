"""How figures are made: command line, drawing, `make reproduce`."""

"""One module for each command, as Django finds them."""

"""`python -m faultline` is the `faultline` command."""

from faultline.cli.main import main

main()

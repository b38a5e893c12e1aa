"""The commands `faultline demo`, `faultline drill` and `faultline bench`: one module per command."""

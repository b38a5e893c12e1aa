"""The `faultline` processes of a drill: started, observed, stalled, killed and replaced."""

"""The `faultline` processes of a drill: started, observed, stopped, replaced."""

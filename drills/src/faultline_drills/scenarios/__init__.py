"""The stories, one per file; `faultline_drills.scenario.all_scenarios` finds them."""

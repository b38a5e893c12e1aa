"""The stories, one per file; `faultline.drills.scenario.all_scenarios` finds them."""

"""Reports on campaigns, scenarios and the race, with plots and an animation."""

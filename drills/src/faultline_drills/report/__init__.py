"""Reports on campaigns, scenarios and the race: JSON, Markdown, HTML, plots and an animation."""

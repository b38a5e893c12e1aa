"""From campaigns to files: a summary, a report as JSON, Markdown and HTML, plots, and a drawn race."""

"""Text, plots, the HTML report and the notebook card."""

"""Plots, the HTML report, the notebook card and the web explorer."""

"""Ranges of expressions on pieces that are given: balls, intervals with exact ends, series and Taylor models."""

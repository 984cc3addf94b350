"""The functions of one argument: one entry each, and what it does to balls, intervals, series and Taylor models."""

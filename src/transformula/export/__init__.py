"""Models in the formats of other tools, with the claim they carry and what their layers cost."""

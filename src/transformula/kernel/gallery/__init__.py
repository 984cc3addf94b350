"""Rules for the gallery: constructions beyond polynomials, one-layer models and circuits, one file each."""

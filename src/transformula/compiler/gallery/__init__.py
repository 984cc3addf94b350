"""The gallery: constructions from other papers, only made on request."""

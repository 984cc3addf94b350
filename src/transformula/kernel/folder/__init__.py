"""The files of a model: weights, model.json, evidence and certificate, bounded before they are believed."""

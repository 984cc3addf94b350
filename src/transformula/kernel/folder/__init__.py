"""What a model folder holds: weights, model.json, evidence and certificate, bounded before they are believed."""

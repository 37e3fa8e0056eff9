"""Files that run without cosda: a model as one graph of tensors, in the formats of others."""

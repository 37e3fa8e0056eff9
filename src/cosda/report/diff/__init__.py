"""What changes between the answers of two models."""

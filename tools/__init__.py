"""For developers: the documentation site and its figures, and what is run by hand. Not part of the package."""

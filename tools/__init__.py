"""For developers: what is not part of the package and not run by the tests."""

"""One command, one file. Parsing and printing; no logic."""

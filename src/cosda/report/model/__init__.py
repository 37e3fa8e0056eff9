"""What a report is made of: groups of runs, tables of numbers, significance tests, the paper's numbers, words."""

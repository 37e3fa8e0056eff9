"""Speed, as ratios that are measured interleaved in one run. `make bench` runs all; `python -m benchmarks step` runs one."""

"""Speed, as ratios measured interleaved in one run. `make bench` runs all; `python -m benchmarks step` runs one."""

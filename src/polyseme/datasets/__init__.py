"""Named benchmarks and suites: where their files are and how they are read."""

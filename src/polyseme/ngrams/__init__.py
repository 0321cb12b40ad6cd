"""n-gram models: counted, smoothed, looked up; no encoder and no states."""

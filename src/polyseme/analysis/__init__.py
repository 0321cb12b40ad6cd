"""Analysis of models: what layers predict, what heads and single cells follow, what words add to a score."""

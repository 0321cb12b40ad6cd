"""Named recipes: one file per paper, each a small table of differences."""

"""Named recipes: a file a paper, each a small table of differences."""

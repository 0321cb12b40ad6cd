"""The uses of a word: index, neighbors, clusters, maps."""

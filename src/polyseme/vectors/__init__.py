"""From states to a vector for every word: layers, pooling, and the flow that runs them over documents."""

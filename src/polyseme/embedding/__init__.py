"""From states to one vector per word: layers, pooling, and the flow that runs them over documents."""

"""What encoders are made of: attention, masks, positions, norms, feed-forward, embeddings, memory."""

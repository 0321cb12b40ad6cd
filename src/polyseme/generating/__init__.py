"""Writing on from prompts: decoding, sampling, beam search."""

"""Two small English language models, trained by polyseme: the folders `encoder` (masked) and `decoder` (causal)."""

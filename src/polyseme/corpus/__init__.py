"""Raw text to shards of pieces, and shards to rows: what training reads."""

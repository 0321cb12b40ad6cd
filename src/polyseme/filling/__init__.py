"""What may be where a text has a mask: whole words of any number of pieces, given answers, spans."""

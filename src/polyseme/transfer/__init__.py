"""Task models: any encoder, frozen or fine-tuned, under a head; trained over seeds, reported, kept, used."""

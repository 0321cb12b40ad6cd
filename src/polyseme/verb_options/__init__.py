"""The options of every command, as records: what an option means is written here and nowhere else."""

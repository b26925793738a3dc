"""All that is on disk: storage, whole files, records, checkpoints, labels."""

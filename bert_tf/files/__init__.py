"""Files on disk or in a bucket: paths, atomic writing, records, checkpoints, class labels."""

"""A table's own files about itself: schemas, snapshots, manifests, statistics, options, paths."""

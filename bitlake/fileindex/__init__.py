"""File indexes: the index types of a data file, their registry, and evaluating predicates with them."""

"""Show the content of any file of a table as a tree of its parts with byte offsets."""

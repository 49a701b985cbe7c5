"""Write DataFrames and streams into lake tables."""

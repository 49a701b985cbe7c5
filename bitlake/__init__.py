"""bitlake: Apache Paimon lake tables with their whole index system, in Python and on Spark."""

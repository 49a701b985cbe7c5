"""Iceberg metadata of a table's data files, as Paimon writes it beside its own: bytes in, values out.

::

    metadata/version-hint.text                 the version of the current table metadata, as text
    metadata/v<n>.metadata.json                table metadata (table_metadata.py); n is the Paimon snapshot's id
      └ metadata/snap-<k>-<uuid>.avro          manifest list of each Iceberg snapshot (manifest.py)
          └ metadata/<uuid>-m<k>.avro          manifests (manifest.py), of data files and of deletion vectors
              ├ <partition>/bucket-<b>/data-…  Paimon's own data files
              └ metadata/<uuid>-d<k>.puffin    copies of Paimon's 64-bit deletion vectors (manifest.py)

Data files exist once, for readers of both formats.  An Iceberg snapshot has the id and the
sequence number of the Paimon snapshot that it shows.

:mod:`bitlake.snapshot.iceberg_metadata` writes these files after a commit.

Sources: the Apache Iceberg table specification; Paimon's package ``org.apache.paimon.iceberg``.
"""

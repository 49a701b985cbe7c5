"""Explain a scan: the files, pages and conditions of its plan, as text, values and HTML."""

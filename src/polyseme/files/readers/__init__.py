"""A file a format: each has `read(source, request)`, which gives the rows of a source one after another.

What the first bytes or lines show to be wrong is refused by the call itself, the rest when it is met.
`polyseme.files.row_reader.READERS` is the list.
"""

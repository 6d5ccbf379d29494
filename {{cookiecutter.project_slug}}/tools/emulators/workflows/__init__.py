"""Workflows on a laptop: the whole language and its APIs.

`definition.load` turns a source into a checked `Definition`; `engine.execute` runs one execution of it. The engine is
pure: clock, transport, callbacks, ids and logs are passed in as a `World`. The API servers live beside it.
"""

"""`make demo`: the main job, end to end, on real handwritten digits and over the real SDKs.

It is a client like any other: it knows the app by its HTTP API and Azure by its SDKs, and reaches
both through `endpoints.json`. Everything that it tells was read back from there.
"""

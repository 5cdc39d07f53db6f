"""`make demo`: the main workflow, end to end, with real handwritten digits and the real SDKs.

It is an ordinary client: it uses the app's HTTP API and Azure's SDKs, with the addresses in
`endpoints.json`. It reports only what it has read back from them.
"""

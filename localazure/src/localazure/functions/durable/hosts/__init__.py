"""One engine for several hosts of an app: its server, and the link of a host to it.

Engine and hosts speak HTTP on a Unix socket, in a folder of this user. A host connects by a
WebSocket to `HOSTS_PATH`, and both send JSON texts:

1. The host sends its `AppDescription`.
2. The engine answers `{"clientBinding": …}`, or `{"refusal": …}` with the reason.
3. The engine sends calls: token, function, instance id (or null) and trigger, in a list.
4. The host answers each: token, result (or null) and failure (null, or type, message and stack).
5. The host sends `null` when it takes no further calls, and closes the connection after its last
   answer.

All other paths are those of the management API.
"""

HOSTS_PATH = "/hosts"

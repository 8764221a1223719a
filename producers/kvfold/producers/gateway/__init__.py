"""The gateway: the write routes over HTTP, to be mounted in an ASGI app (`write_routes`)."""

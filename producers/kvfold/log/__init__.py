"""The log: ports and adapters (`port`, `memory`, `postgres`, `kafka`)."""
